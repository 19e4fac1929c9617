// Output: one result, five formats. Standard output holds data only.

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Formats of -o.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatName  = "name"
)

func formats() []string {
	return []string{formatTable, formatWide, formatJSON, formatYAML, formatName}
}

// result is what a command has to say.
type result struct {
	doc   any            // for json and yaml
	names []string       // for name, as kind/name
	draw  func(*painter) // for table and wide
}

// print writes a result in the format that was asked for.
func (a *app) print(r result) error {
	switch a.format {
	case formatJSON:
		return writeJSON(a.io.Out, r.doc, "  ")
	case formatYAML:
		return writeYAML(a.io.Out, r.doc)
	case formatName:
		for _, n := range r.names {
			if _, err := fmt.Fprintln(a.io.Out, clean(n)); err != nil {
				return err
			}
		}
		return nil
	}
	p := a.painter()
	r.draw(p)
	_, err := io.WriteString(a.io.Out, p.String())
	return err
}

func writeJSON(w io.Writer, doc any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	return enc.Encode(doc)
}

// writeYAML goes through JSON, so that both formats have the same names and order.
func writeYAML(w io.Writer, doc any) error {
	b, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(b, &n); err != nil {
		return err
	}
	block(&n)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&n); err != nil {
		return err
	}
	return enc.Close()
}

// block turns JSON's flow style into the usual YAML; empty lists and maps stay [] and {}.
func block(n *yaml.Node) {
	if len(n.Content) > 0 {
		n.Style = 0
	}
	if n.Kind == yaml.ScalarNode {
		n.Style = 0 // quoted only where YAML needs it
	}
	for _, c := range n.Content {
		block(c)
	}
}

// column is one column of a table. Columns with drop 0 always stay; of the
// others, the highest go first when the terminal is too narrow.
type column struct {
	head string
	drop int
	wide bool // only in -o wide
}

// painter draws for people.
type painter struct {
	strings.Builder
	wide   bool
	width  int // 0 is unlimited
	colour bool
}

func (a *app) painter() *painter {
	return &painter{wide: a.format == formatWide, width: a.io.Width, colour: a.io.wantsColour(a.colour)}
}

// line writes one line; strings and cells among its arguments are cleaned for the terminal.
func (p *painter) line(format string, args ...any) {
	p.WriteString(p.text(format, args...) + "\n")
}

func (p *painter) text(format string, args ...any) string {
	for i, x := range args {
		switch x := x.(type) {
		case string:
			args[i] = clean(x)
		case cell:
			args[i] = p.paint(cell{clean(x.text), x.colour})
		}
	}
	return fmt.Sprintf(format, args...)
}

// The three colours; the words always say the same, so that colour is never the only carrier.
func (p *painter) good(s string) cell { return cell{s, "32"} }
func (p *painter) warn(s string) cell { return cell{s, "33"} }
func (p *painter) bad(s string) cell  { return cell{s, "31"} }

// cell is a text with a colour; plain text has none.
type cell struct {
	text   string
	colour string
}

func plain(s string) cell { return cell{text: s} }

// cells makes plain cells.
func cells(texts ...string) []cell {
	out := make([]cell, len(texts))
	for i, t := range texts {
		out[i] = plain(t)
	}
	return out
}

func (p *painter) paint(c cell) string {
	if !p.colour || c.colour == "" {
		return c.text
	}
	return "\x1b[" + c.colour + "m" + c.text + "\x1b[0m"
}

// table draws rows without borders, so that they can be read and grepped. It
// returns the headings that there was room for.
func (p *painter) table(cols []column, rows [][]cell) (shown []string) {
	widths := make([]int, len(cols))
	for i, c := range cols {
		widths[i] = len(c.head)
	}
	for _, row := range rows {
		for i := range row {
			row[i].text = clean(row[i].text)
			widths[i] = max(widths[i], len([]rune(row[i].text)))
		}
	}
	show := p.fit(cols, widths)
	for _, i := range show {
		shown = append(shown, cols[i].head)
	}
	head := make([]cell, len(cols))
	for i, c := range cols {
		head[i] = plain(c.head)
	}
	for r, row := range append([][]cell{head}, rows...) {
		var b strings.Builder
		for n, i := range show {
			text := row[i].text
			if text == "" && r > 0 {
				text, row[i].text = "-", "-"
			}
			b.WriteString(p.paint(row[i]))
			if n < len(show)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-len([]rune(text))+2))
			}
		}
		p.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
	return shown
}

// fit picks the columns that the terminal has room for.
func (p *painter) fit(cols []column, widths []int) []int {
	var show []int
	for i, c := range cols {
		if !c.wide || p.wide {
			show = append(show, i)
		}
	}
	for p.width > 0 && !p.wide {
		total, worst := -2, -1
		for n, i := range show {
			total += widths[i] + 2
			if cols[i].drop > 0 && (worst < 0 || cols[i].drop > cols[show[worst]].drop) {
				worst = n
			}
		}
		if total <= p.width || worst < 0 {
			break
		}
		show = slices.Delete(show, worst, worst+1)
	}
	return show
}

// clean removes what could steer a terminal or break a row.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x061c {
			return '?'
		}
		return r
	}, s)
}
