// forgeyard explain CODE: the offline catalogue. forgeyard version.

package cli

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cluster/config/ron"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/codes"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/server"
)

// Explanation is what explain answers.
type Explanation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	codes.Entry
}

func (a *app) explainCommand() *cobra.Command {
	var list bool
	c := &cobra.Command{
		Use: "explain CODE", Short: "Explain an error code, offline", Args: args(0, 1, "CODE"),
		Example: "  forgeyard explain FY-QUORUM-001\n  forgeyard explain --list",
		RunE: func(_ *cobra.Command, given []string) error {
			if list {
				return a.listCodes()
			}
			if len(given) == 0 {
				return usagef("list them with: forgeyard explain --list", "which code?")
			}
			return a.explainCode(given[0])
		},
	}
	c.Flags().BoolVar(&list, "list", false, "list every code")
	return c
}

func (a *app) explainCode(code string) error {
	e, ok, err := codes.Find(code)
	if err != nil {
		return err
	}
	if !ok {
		all, err := codes.All()
		if err != nil {
			return err
		}
		var known []string
		for _, e := range all {
			if strings.EqualFold(family(e.Code), family(code)) {
				known = append(known, e.Code)
			}
		}
		hint := "list them with: forgeyard explain --list"
		if s := ron.Suggest(strings.ToUpper(code), known); s != "" {
			hint = "did you mean " + s + "?"
		}
		return usagef(hint, "unknown code %q", code)
	}
	doc := Explanation{APIVersion: apiVersion, Kind: "Explanation", Entry: e}
	return a.print(result{doc: doc, names: []string{"code/" + e.Code}, draw: func(p *painter) {
		p.line("%s  %s", e.Code, e.Title)
		p.line("")
		for line := range strings.SplitSeq(e.Text, "\n") {
			p.prose("%s", line)
		}
	}})
}

// family is a code without its number. Of another family a code that looks alike means something else.
func family(code string) string { return code[:max(0, strings.LastIndexByte(code, '-'))] }

func (a *app) listCodes() error {
	all, err := codes.All()
	if err != nil {
		return err
	}
	var names []string
	for _, e := range all {
		names = append(names, "code/"+e.Code)
	}
	doc := map[string]any{"apiVersion": apiVersion, "kind": "Codes", "codes": all}
	return a.print(result{doc: doc, names: names, draw: func(p *painter) {
		var rows [][]cell
		for _, e := range all {
			rows = append(rows, cells(e.Code, e.Title))
		}
		p.table([]column{{head: "CODE"}, {head: "MEANING"}}, rows)
	}})
}

func (a *app) versionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of this binary", Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			v := BuildVersion(version)
			v.APIVersion, v.Kind = apiVersion, "Version"
			return a.print(result{doc: v, names: []string{"version/" + v.Version}, draw: func(p *painter) {
				p.line("forgeyard %s (%s, %s, %s/%s)", v.Version, v.Commit, v.Go, runtime.GOOS, runtime.GOARCH)
			}})
		},
	}
}

// BuildVersion describes this binary; version is "dev" when empty.
func BuildVersion(version string) server.Version {
	v := server.Version{Version: version, Commit: "unknown commit", Go: runtime.Version()}
	if v.Version == "" {
		v.Version = "dev"
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
}
