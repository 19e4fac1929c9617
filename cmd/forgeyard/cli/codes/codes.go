// Package codes is the offline catalogue of every error code: what it means, why it happens, what to do.
//
// The texts live in one Markdown file per area, embedded in the binary. A test
// compares them with the codes that the source uses, in both directions.
package codes

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed *.md
var files embed.FS

// Entry explains one code.
type Entry struct {
	Code  string `json:"code"`
	Title string `json:"title"`
	Text  string `json:"text"` // paragraphs that start with What, Why or Now
}

// All returns every entry, sorted by code.
func All() ([]Entry, error) {
	names, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("catalogue: %w", err)
	}
	var all []Entry
	for _, n := range names {
		b, err := files.ReadFile(n.Name())
		if err != nil {
			return nil, fmt.Errorf("catalogue: %w", err)
		}
		all = append(all, parse(string(b))...)
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Code, b.Code) })
	return all, nil
}

// parse reads the `## CODE title` sections of a file.
func parse(text string) []Entry {
	var out []Entry
	for _, section := range strings.Split("\n"+text, "\n## ")[1:] {
		head, body, _ := strings.Cut(section, "\n")
		code, title, _ := strings.Cut(head, " ")
		out = append(out, Entry{Code: code, Title: title, Text: strings.TrimSpace(body)})
	}
	return out
}

// Find returns the entry of a code; case does not matter.
func Find(code string) (Entry, bool, error) {
	all, err := All()
	if err != nil {
		return Entry{}, false, err
	}
	for _, e := range all {
		if strings.EqualFold(e.Code, code) {
			return e, true, nil
		}
	}
	return Entry{}, false, nil
}
