// forgeyard token keygen|issue: signing keys of the API's tokens, and tokens. The private key never leaves this process.

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/access/token"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
)

func (a *app) tokenCommand() *cobra.Command {
	c := group(&cobra.Command{Use: "token", Short: "Create signing keys and issue API tokens"})
	c.AddCommand(a.tokenKeygenCommand(), a.tokenIssueCommand())
	return c
}

// SigningKey is what token keygen answers.
type SigningKey struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	KeyID      string `json:"kid"`
	Key        string `json:"key"`
	Public     string `json:"public"`
}

// IssuedToken is what token issue answers; Token is empty when it went to a file.
type IssuedToken struct {
	APIVersion  string              `json:"apiVersion"`
	Kind        string              `json:"kind"`
	ID          string              `json:"id"`
	KeyID       string              `json:"kid"`
	Subject     string              `json:"subject"`
	Permissions []access.Permission `json:"permissions"`
	Expires     time.Time           `json:"expires"`
	Token       string              `json:"token,omitempty"`
	File        string              `json:"file,omitempty"`
}

func (a *app) tokenKeygenCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use: "keygen", Short: "Create a key pair that signs tokens", Args: noArguments,
		Long: "Create a key pair that signs API tokens: " + token.PrivateFile + " stays with you, " + token.PublicFile + " goes to every daemon.\n" +
			"Daemons read it from where api.tokens.keys points, without a restart.",
		Example: "  forgeyard token keygen --out ops-key",
		RunE: func(*cobra.Command, []string) error {
			id, err := token.Generate(out)
			if err != nil {
				return err
			}
			doc := SigningKey{
				APIVersion: apiVersion, Kind: "SigningKey", KeyID: id,
				Key: filepath.Join(out, token.PrivateFile), Public: filepath.Join(out, token.PublicFile),
			}
			return a.print(result{doc: doc, names: []string{"key/" + id}, draw: func(p *painter) {
				p.line("created signing key %s", id)
				p.line("  %s   keep it private: whoever holds it can make tokens", doc.Key)
				p.line("  %s   copy it to every daemon, into a directory of api.tokens.keys", doc.Public)
				p.line("next: forgeyard token issue --key %s --sub NAME --permission run.submit,run.read --endpoint unix://…/admin.sock", doc.Key)
			}})
		},
	}
	c.Flags().StringVar(&out, "out", "token", "directory to write to")
	return c
}

// issueFlags are the flags of token issue.
type issueFlags struct {
	key, subject, out string
	permissions       []string
	ttl               time.Duration
}

func (a *app) tokenIssueCommand() *cobra.Command {
	var f issueFlags
	c := &cobra.Command{
		Use: "issue", Short: "Issue an API token", Args: noArguments,
		Long: "Issue an API token. A daemon grants it over its administration socket and records that; the signature is made here.\n" +
			"The token is printed once. It cannot be revoked alone: keep its lifetime short (at most " + token.MaxLifetime.String() + ").",
		Example: "  forgeyard token issue --key ops-key/token.key --sub ci-trigger \\\n" +
			"      --permission run.submit,run.read --ttl 1h \\\n" +
			"      --endpoint unix:///var/lib/forgeyard/admin.sock --out ci.token",
		RunE: func(c *cobra.Command, _ []string) error { return a.issueToken(c.Context(), f) },
	}
	c.Flags().StringVar(&f.key, "key", "", "`file` of the private key that token keygen wrote")
	c.Flags().StringVar(&f.subject, "sub", "", "whom the token is for; it appears in audit records")
	c.Flags().StringSliceVar(&f.permissions, "permission", nil, "what it may do: "+access.PermissionNames())
	c.Flags().DurationVar(&f.ttl, "ttl", time.Hour, "how long it is valid")
	c.Flags().StringVar(&f.out, "out", "", "`file` to write it to (0600) instead of printing it")
	return c
}

func (a *app) issueToken(ctx context.Context, f issueFlags) error {
	signer, req, err := a.tokenRequest(f)
	if err != nil {
		return err
	}
	var granted token.Grant
	err = a.call(ctx, func(ctx context.Context, c *client.Client) error {
		return c.Post(ctx, "/v1/tokens/grants", "", req, &granted)
	})
	if err != nil {
		return err
	}
	text, err := signer.Sign(granted.Claims)
	if err != nil {
		return err
	}
	doc := IssuedToken{
		APIVersion: apiVersion, Kind: "Token", ID: granted.Claims.ID, KeyID: granted.KeyID, Subject: granted.Claims.Subject,
		Permissions: granted.Claims.Permissions, Expires: granted.Claims.ExpiresAt.UTC(), Token: text,
	}
	if f.out != "" {
		if err := writePrivate(f.out, text+"\n"); err != nil {
			return err
		}
		doc.Token, doc.File = "", f.out
	}
	return a.printToken(doc)
}

// tokenRequest checks the flags before any daemon is asked.
func (a *app) tokenRequest(f issueFlags) (s token.Signer, req token.Request, err error) {
	if f.key == "" || f.subject == "" || len(f.permissions) == 0 {
		return s, req, usagef("see: forgeyard token issue --help", "--key, --sub and --permission are needed")
	}
	if !slices.ContainsFunc(a.endpointNames(), func(e string) bool { return strings.HasPrefix(e, "unix://") }) {
		return s, req, usagef("on a daemon's machine add --endpoint unix:///var/lib/forgeyard/admin.sock", "tokens are granted over the administration socket only")
	}
	if f.out != "" {
		if _, err := os.Lstat(f.out); err == nil {
			return s, req, &refusal{message: f.out + " exists and is not replaced", hint: "choose another file with --out"}
		}
	}
	if s, err = token.ReadSigner(f.key); err != nil {
		return s, req, err
	}
	req = token.Request{KeyID: s.KeyID(), Subject: f.subject, TTLSeconds: int64(f.ttl / time.Second)}
	for _, p := range f.permissions {
		req.Permissions = append(req.Permissions, access.Permission(strings.TrimSpace(p)))
	}
	var fault *access.Fault
	if err := req.Check(); errors.As(err, &fault) {
		return s, req, usagef("see: forgeyard token issue --help", "%s", fault.Message)
	}
	return s, req, nil
}

// printToken prints the token alone on standard output, so that a script can
// take it; what it is goes to standard error.
func (a *app) printToken(doc IssuedToken) error {
	if a.format == formatTable || a.format == formatWide {
		if _, err := fmt.Fprintf(a.io.Err, "token %s for %s, valid until %s\n", doc.ID, clean(doc.Subject), doc.Expires.Format(time.RFC3339)); err != nil {
			return err
		}
	}
	return a.print(result{doc: doc, names: []string{"token/" + doc.ID}, draw: func(p *painter) {
		if doc.File != "" {
			p.line("written to %s; use it with --token-file %s", doc.File, doc.File)
			return
		}
		p.line("%s", doc.Token)
	}})
}

// writePrivate makes a new file that only its owner can read.
func writePrivate(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the token: %w", err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the token: %w", err)
	}
	return nil
}
