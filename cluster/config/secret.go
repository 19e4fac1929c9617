// References to secrets (§321): where a secret is, never the secret; and connection strings, which are shown redacted.

package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/forgeyard/forgeyard/cluster/config/ron"
)

// Source says where a secret is kept.
type Source uint8

// The sources of a secret.
const (
	FromFile Source = 1 // a file of at most maxSecret bytes
	FromEnv  Source = 2 // an environment variable
)

const maxSecret = 1 << 20

// SecretRef refers to a secret: File("path") or Env("NAME"), also written
// "file:path" or "env:NAME". The zero value refers to nothing.
type SecretRef struct {
	Source Source
	Name   string
}

// IsZero reports whether nothing is referred to.
func (r SecretRef) IsZero() bool { return r.Name == "" }

// String is the reference as RON writes it; it never holds the secret.
func (r SecretRef) String() string {
	switch r.Source {
	case FromFile:
		return "File(" + quote(r.Name) + ")"
	case FromEnv:
		return "Env(" + quote(r.Name) + ")"
	}
	return "None"
}

// Read fetches the secret.
func (r SecretRef) Read() ([]byte, error) {
	switch r.Source {
	case FromFile:
		info, err := os.Stat(r.Name)
		if err != nil {
			return nil, fmt.Errorf("read secret: %w", err)
		}
		if info.Size() > maxSecret {
			return nil, fmt.Errorf("read secret: %s is larger than %d bytes", r.Name, maxSecret)
		}
		b, err := os.ReadFile(r.Name)
		if err != nil {
			return nil, fmt.Errorf("read secret: %w", err)
		}
		return b, nil
	case FromEnv:
		if v, ok := os.LookupEnv(r.Name); ok {
			return []byte(v), nil
		}
		return nil, fmt.Errorf("read secret: environment variable %s is not set", r.Name)
	}
	return nil, errors.New("read secret: nothing is referred to")
}

// UnmarshalRON reads a reference and refuses key material (FY-CONFIG-005).
func (r *SecretRef) UnmarshalRON(v ron.Value) error {
	ref, ok := parseRef(v)
	if ok {
		*r = ref
		return nil
	}
	if v.Kind == ron.String && strings.Contains(v.Text, "-----BEGIN") {
		return refuse(CodeInlineSecret, v, "key material does not belong into a configuration; write File(\"path\") or Env(\"NAME\")")
	}
	return v.Errorf("expected a reference: File(\"path\") or Env(\"NAME\")")
}

func parseRef(v ron.Value) (SecretRef, bool) {
	switch {
	case v.Kind == ron.Tuple && len(v.Items) == 1 && v.Items[0].Kind == ron.String && v.Items[0].Text != "":
		switch v.Name {
		case "File":
			return SecretRef{FromFile, v.Items[0].Text}, true
		case "Env":
			return SecretRef{FromEnv, v.Items[0].Text}, true
		}
	case v.Kind == ron.String:
		if name, ok := strings.CutPrefix(v.Text, "file:"); ok && name != "" {
			return SecretRef{FromFile, name}, true
		}
		if name, ok := strings.CutPrefix(v.Text, "env:"); ok && name != "" {
			return SecretRef{FromEnv, name}, true
		}
	}
	return SecretRef{}, false
}

// DSN is a PostgreSQL connection string, inline or by reference. Its text forms
// never show a password; only Read returns it.
type DSN struct {
	Ref    SecretRef
	inline string
}

// InlineDSN makes a DSN from a connection string.
func InlineDSN(s string) DSN { return DSN{inline: s} }

// IsZero reports whether no connection string is configured.
func (d DSN) IsZero() bool { return d.Ref.IsZero() && d.inline == "" }

// Read returns the connection string; "" when none is configured.
func (d DSN) Read() (string, error) {
	if d.Ref.IsZero() {
		return d.inline, nil
	}
	b, err := d.Ref.Read()
	return strings.TrimSpace(string(b)), err
}

// UnmarshalRON reads a connection string or a reference to one.
func (d *DSN) UnmarshalRON(v ron.Value) error {
	if ref, ok := parseRef(v); ok {
		*d = DSN{Ref: ref}
		return nil
	}
	if v.Kind != ron.String {
		return v.Errorf("expected a connection string, File(\"path\") or Env(\"NAME\")")
	}
	*d = DSN{inline: v.Text}
	return nil
}

// A value ends at a space, unless that is quoted or escaped.
var keywordPassword = regexp.MustCompile(`(?is)(password|sslpassword|passfile)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)+)`)

// String is the connection string as RON writes it, with passwords replaced.
func (d DSN) String() string {
	if !d.Ref.IsZero() {
		return d.Ref.String()
	}
	if d.inline == "" {
		return "None"
	}
	return quote(redact(d.inline))
}

// GoString keeps %#v from showing a password.
func (d DSN) GoString() string { return d.String() }

const hidden = "REDACTED"

func redact(dsn string) string {
	// As the driver tells them apart: a "://" may also stand in a value.
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return keywordPassword.ReplaceAllString(dsn, "$1="+hidden)
	}
	u, err := url.Parse(dsn)
	if err != nil || strings.Contains(dsn, "#") {
		return hidden // unreadable, or not as the driver reads it, to which "#" means nothing: show nothing of it
	}
	if _, ok := u.User.Password(); ok {
		u.User = url.UserPassword(u.User.Username(), hidden)
	}
	q := u.Query()
	for key := range q {
		if strings.Contains(strings.ToLower(key), "password") {
			q.Set(key, hidden)
			u.RawQuery = q.Encode()
		}
	}
	return u.String()
}

// quote writes a RON string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func parseSize(text string) (Size, bool) {
	unit := int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			text, unit = rest, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, false
	}
	return Size(n * unit), true
}
