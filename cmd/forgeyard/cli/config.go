// forgeyard config check|example|show: the configuration, without a daemon.

package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cluster/config"
)

// apiVersion opens every document.
const apiVersion = "forgeyard.dev/v1"

func (a *app) configCommand() *cobra.Command {
	c := group(&cobra.Command{Use: "config", Short: "Check, show or write a configuration"})
	c.AddCommand(a.configCheckCommand(), a.configExampleCommand(), a.configShowCommand())
	return c
}

// load reads the configuration as a daemon would, with file in the place of --config.
func (a *app) load(ctx context.Context, file string) (*config.Loaded, error) {
	return untilInterrupted(ctx, func() (*config.Loaded, error) {
		return config.Load(config.Options{File: file, Environ: a.io.Environ, Search: config.SearchPath()})
	})
}

// ConfigCheck is what config check answers.
type ConfigCheck struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	File       string   `json:"file"`
	OK         bool     `json:"ok"`
	Warnings   []string `json:"warnings"`
}

func (a *app) configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check [FILE]", Short: "Check a configuration, offline; exits 2 when it is wrong", Args: args(0, 1, "[FILE]"),
		Example: "  forgeyard config check forgeyard.ron",
		RunE: func(c *cobra.Command, files []string) error {
			l, err := a.load(c.Context(), strings.Join(files, ""))
			if err != nil {
				return err
			}
			doc := ConfigCheck{APIVersion: apiVersion, Kind: "ConfigCheck", File: l.File, OK: true, Warnings: append([]string{}, l.Warnings...)}
			return a.print(result{doc: doc, names: []string{"config/" + l.File}, draw: func(p *painter) {
				for _, w := range l.Warnings {
					p.prose("warning: %s", w)
				}
				if l.File == "" {
					p.line("ok: no file found, defaults and environment are in effect")
					return
				}
				p.line("ok: %s", l.File)
			}})
		},
	}
}

func (a *app) configExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use: "example", Short: "Write a commented configuration", Args: noArguments,
		Example: "  forgeyard config example > forgeyard.ron",
		RunE: func(*cobra.Command, []string) error {
			text := config.Example()
			doc := map[string]string{"apiVersion": apiVersion, "kind": "ConfigExample", "text": text}
			return a.print(result{doc: doc, names: []string{"config/example"}, draw: func(p *painter) { p.WriteString(text) }})
		},
	}
}

// ConfigShow is what config show answers.
type ConfigShow struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	File       string          `json:"file"`
	Settings   []ConfigSetting `json:"settings"`
}

// ConfigSetting is one setting in effect; Value is RON, with secrets replaced.
type ConfigSetting struct {
	Path   string `json:"path"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
	Env    string `json:"env"`
	Flag   string `json:"flag"`
}

func (a *app) configShowCommand() *cobra.Command {
	var file string
	var origin bool
	c := &cobra.Command{
		Use: "show", Short: "Show the configuration in effect, passwords replaced", Args: noArguments,
		Example: "  forgeyard config show --origin\n  forgeyard config show --config forgeyard.ron -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := a.load(c.Context(), file)
			if err != nil {
				return err
			}
			doc := ConfigShow{APIVersion: apiVersion, Kind: "Config", File: l.File}
			var names []string
			for _, s := range config.Settings() {
				doc.Settings = append(doc.Settings, ConfigSetting{
					Path: s.Path, Value: s.Value(l.Config), Origin: l.Origins[s.Path].String(), Env: s.Env, Flag: "--" + s.Flag,
				})
				names = append(names, "setting/"+s.Path)
			}
			return a.print(result{doc: doc, names: names, draw: func(p *painter) { p.WriteString(l.Show(origin)) }})
		},
	}
	c.Flags().StringVar(&file, "config", "", "configuration file (default $FORGEYARD_CONFIG, ./forgeyard.ron, /etc/forgeyard/forgeyard.ron)")
	c.Flags().BoolVar(&origin, "origin", false, "say where each value comes from")
	return c
}
