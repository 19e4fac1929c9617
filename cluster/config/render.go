// Writing a configuration: the commented example, and what `config show` prints. Both load again.

package config

import (
	"fmt"
	"strings"
)

// Example is a commented configuration of one node of three, with every setting. It loads as it is.
func Example() string {
	c := Default()
	c.Cluster.Mode = Distributed
	c.Cluster.NodeID = "node-a"
	c.Cluster.Seeds = []string{"127.0.0.1:7453", "127.0.0.1:7463"}
	c.derive()
	c.Postgres = Postgres{
		Owner:  DSN{Ref: SecretRef{FromEnv, "FORGEYARD_PG_OWNER"}},
		App:    DSN{Ref: SecretRef{FromEnv, "FORGEYARD_PG_APP"}},
		Direct: DSN{Ref: SecretRef{FromEnv, "FORGEYARD_PG_DIRECT"}},
	}
	c.CAS.URL = "file:///srv/forgeyard/cas"
	head := "// Forgeyard daemon configuration. Everything is optional; what stands here is the default\n" +
		"// except for cluster.mode, node_id, seeds, postgres and cas.url. Precedence: flag > FORGEYARD_… > this file > default.\n"
	return head + render(c, func(s Setting) string { return s.Doc })
}

// Show is the configuration in effect as a file that loads, passwords replaced.
// With origins, each line ends with where its value came from.
func (l *Loaded) Show(origins bool) string {
	return render(l.Config, func(s Setting) string {
		if !origins {
			return ""
		}
		return l.Origins[s.Path].String()
	})
}

func render(c Config, comment func(Setting) string) string {
	var b strings.Builder
	var open []string
	b.WriteString("(\n")
	indent := func() string { return strings.Repeat("    ", len(open)+1) }
	closeTo := func(n int) {
		for len(open) > n {
			open = open[:len(open)-1]
			b.WriteString(indent() + "),\n")
		}
	}
	for _, s := range Settings() {
		parts := strings.Split(s.Path, ".")
		sections, name := parts[:len(parts)-1], parts[len(parts)-1]
		same := 0
		for same < len(open) && same < len(sections) && open[same] == sections[same] {
			same++
		}
		closeTo(same)
		for _, section := range sections[same:] {
			b.WriteString(indent() + section + ": (\n")
			open = append(open, section)
		}
		line := indent() + name + ": " + s.Value(c) + ","
		if text := comment(s); text != "" {
			line = fmt.Sprintf("%-52s // %s", line, text)
		}
		b.WriteString(line + "\n")
	}
	closeTo(0)
	b.WriteString(")\n")
	return b.String()
}
