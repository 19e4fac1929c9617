// Help: cobra's layout, with the flags that every command has told once.

package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// sharedFlags stands in a command's help for the flags that all have.
const sharedFlags = `{{if .HasAvailableInheritedFlags}}

Flags of every command (-o, --endpoint, --timeout, credentials): forgeyard --help{{end}}`

// helpTemplate takes the inherited flags out of cobra's template.
func helpTemplate(root *cobra.Command) {
	t := root.UsageTemplate()
	from := strings.Index(t, "{{if .HasAvailableInheritedFlags}}")
	to := strings.Index(t, "{{if .HasHelpSubCommands}}")
	if from < 0 || to < from {
		return // another layout: complete, if long
	}
	root.SetUsageTemplate(strings.TrimRight(t[:from], "\n") + sharedFlags + t[to:])
}
