// Help: cobra's layout, folded to the terminal, with the flags that every command has told once.

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// helpWidth is how many columns help takes at most; a narrower terminal gets its own width.
const helpWidth = 80

// sharedFlags stands in a command's help for the flags that all have.
const sharedFlags = `{{if .HasAvailableInheritedFlags}}

Flags of every command (-o, --endpoint, --timeout, …): forgeyard --help{{end}}`

// fitHelp takes the inherited flags out of cobra's template, and folds what is
// longer than the terminal is wide: 0 columns are an unknown width.
func fitHelp(root *cobra.Command, columns int) {
	width := helpWidth
	if columns > 0 {
		width = min(width, columns)
	}
	foldTexts(root, width)
	t := root.UsageTemplate()
	from := strings.Index(t, "{{if .HasAvailableInheritedFlags}}")
	to := strings.Index(t, "{{if .HasHelpSubCommands}}")
	if from < 0 || to < from {
		return // another layout: complete, if long
	}
	t = strings.TrimRight(t[:from], "\n") + sharedFlags + t[to:]
	root.SetUsageTemplate(strings.ReplaceAll(t, ".LocalFlags.FlagUsages", fmt.Sprintf(".LocalFlags.FlagUsagesWrapped %d", width)))
}

// foldTexts folds the long text of a command and of all below it.
func foldTexts(c *cobra.Command, width int) {
	c.Long = fold(c.Long, width)
	for _, sub := range c.Commands() {
		foldTexts(sub, width)
	}
}

// fold sets a text anew in lines of at most width columns, of which a longer
// word alone takes more. Empty lines stay: they part paragraphs.
func fold(text string, width int) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, paragraph := range paragraphs {
		paragraphs[i] = wrap(strings.Join(strings.Fields(paragraph), " "), width, 0)
	}
	return strings.Join(paragraphs, "\n\n")
}
