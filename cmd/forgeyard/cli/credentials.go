// Credentials of the command line: files and environment variables that hold them, never a flag with the secret itself.

package cli

import (
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/forgeyard/forgeyard/cluster/access/token"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// credentials names the files of the flags.
type credentials struct{ tokenFile, ca, cert, certKey string }

func (c *credentials) flags(f *pflag.FlagSet) {
	f.StringVar(&c.tokenFile, "token-file", "", "`file` with an API token (default $FORGEYARD_TOKEN_FILE, or the token itself in $FORGEYARD_TOKEN)")
	f.StringVar(&c.ca, "ca", "", "`file` with the cluster's ca.crt, for https endpoints (default $FORGEYARD_CA)")
	f.StringVar(&c.cert, "cert", "", "`file` with an admin certificate (default $FORGEYARD_CERT)")
	f.StringVar(&c.certKey, "cert-key", "", "`file` with its key (default $FORGEYARD_CERT_KEY)")
}

// read loads what the flags, or else the environment, name.
func (c *credentials) read(in IO) (s client.Security, err error) {
	or := func(flag, env string) string {
		if flag != "" {
			return flag
		}
		return in.getenv(env)
	}
	if s.Token, err = readToken(or(c.tokenFile, "FORGEYARD_TOKEN_FILE"), in.getenv("FORGEYARD_TOKEN")); err != nil {
		return s, err
	}
	if file := or(c.ca, "FORGEYARD_CA"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return s, usagef(readable(err, "give the cluster's ca.crt"), "--ca: %s", err.Error())
		}
		if s.Authorities, err = pki.ParseAuthorities(pem); err != nil {
			return s, err
		}
	}
	cert, key := or(c.cert, "FORGEYARD_CERT"), or(c.certKey, "FORGEYARD_CERT_KEY")
	switch {
	case cert == "" && key == "":
		return s, nil
	case cert == "" || key == "":
		return s, usagef("give both", "--cert and --cert-key belong together")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return s, usagef(readable(err, "issue one with: forgeyard pki issue admin NAME"), "--cert: %s", err.Error())
	}
	s.Certificate = &pair
	return s, nil
}

// readable is what to do about a file that was not read: one that is there needs no other one made.
func readable(err error, otherwise string) string {
	if errors.Is(err, fs.ErrPermission) {
		return "let this user read the file, or run as the one it belongs to"
	}
	return otherwise
}

// readToken takes the token of a file, or the one of the environment. No error shows any of it.
func readToken(file, env string) (client.Token, error) {
	text := env
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return "", usagef(readable(err, "write one with: forgeyard token issue"), "--token-file: %s", err.Error())
		}
		b, err := io.ReadAll(io.LimitReader(f, token.MaxSize+2))
		if err := errors.Join(err, f.Close()); err != nil {
			return "", usagef(readable(err, "write one with: forgeyard token issue"), "--token-file: %s", err.Error())
		}
		text = string(b)
		if strings.TrimSpace(text) == "" {
			return "", usagef("write one with: forgeyard token issue", "--token-file: %s is empty", file)
		}
	}
	text = strings.TrimSpace(text)
	if len(text) > token.MaxSize || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", usagef("get one with: forgeyard token issue", "what is given as a token is none")
	}
	return client.Token(text), nil
}
