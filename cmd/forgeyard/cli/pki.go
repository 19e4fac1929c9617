// forgeyard pki init|issue: the cluster's certificate authority, run on the operator's machine.

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
)

func (a *app) pkiCommand() *cobra.Command {
	c := group(&cobra.Command{Use: "pki", Short: "Create the cluster's authority and issue certificates"})
	c.AddCommand(a.pkiInitCommand(), a.pkiIssueCommand())
	return c
}

// Issued is what the pki commands answer.
type Issued struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Cluster    fsm.ClusterID `json:"cluster_id"`
	Subject    string        `json:"subject"`
	ID         string        `json:"id"`
	Cert       string        `json:"cert"`
	Key        string        `json:"key"`
	CA         string        `json:"ca"`
	Expires    time.Time     `json:"expires"`
}

func (a *app) pkiInitCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "init", Short: "Create the authority of a new cluster", Args: noArguments,
		Long: "Create the authority of a new cluster: ca.crt and ca.key. The cluster's id is minted here.\n" +
			"Keep ca.key away from the daemons; whoever holds it can join the cluster.",
		Example: "  forgeyard pki init --dir pki",
		RunE: func(*cobra.Command, []string) error {
			ca, err := pki.NewAuthority(dir, pki.AuthorityOptions{})
			if err != nil {
				return err
			}
			doc := Issued{
				APIVersion: apiVersion, Kind: "Authority", Cluster: ca.Cluster(), Subject: "forgeyard://" + ca.Cluster().String(),
				ID: ca.Cluster().String(), Cert: filepath.Join(dir, pki.CAFile), Key: filepath.Join(dir, pki.CAKeyFile),
				CA: filepath.Join(dir, pki.CAFile), Expires: time.Now().Add(pki.AuthorityLifetime).UTC().Truncate(time.Second),
			}
			return a.print(result{doc: doc, names: []string{"cluster/" + doc.ID}, draw: func(p *painter) {
				p.line("created the authority of cluster %s", doc.ID)
				p.line("  %s   give it to every node and agent", doc.Cert)
				p.line("  %s   keep it offline: whoever holds it can join the cluster", doc.Key)
				p.line("next: forgeyard pki issue node node-a --dir %s", dir)
			}})
		},
	}
	c.Flags().StringVar(&dir, "dir", "pki", "directory of the authority")
	return c
}

func (a *app) pkiIssueCommand() *cobra.Command {
	var dir, out, id string
	var days int
	c := &cobra.Command{
		Use: "issue node|agent|admin NAME", Short: "Issue a certificate for a node, an agent or an administrator",
		Args: args(2, 2, "node|agent|admin NAME"),
		Long: "Issue a certificate. For a node the permanent node id is minted here and NAME only names the files,\n" +
			"unless --id gives the id of a node that gets a new certificate. For an agent or admin NAME is the id.",
		Example: "  forgeyard pki issue node node-a --out /var/lib/forgeyard/identity\n  forgeyard pki issue agent agent-1",
		RunE: func(c *cobra.Command, names []string) error {
			if days < 1 || days > 3650 {
				return usagef("for example --days 365", "--days must be between 1 and 3650")
			}
			if out == "" {
				out = filepath.Join(dir, names[1])
			}
			doc, err := issue(c.Context(), dir, out, names[0], names[1], id, days)
			if err != nil {
				return err
			}
			return a.print(result{doc: doc, names: []string{names[0] + "/" + doc.ID}, draw: func(p *painter) {
				p.line("issued %s", doc.Subject)
				p.line("  certificate %s", doc.Cert)
				p.line("  key         %s", doc.Key)
				p.line("  authority   %s", doc.CA)
				p.line("  expires     %s", doc.Expires.Format(time.DateOnly))
			}})
		},
	}
	c.Flags().StringVar(&dir, "dir", "pki", "directory of the authority")
	c.Flags().StringVar(&out, "out", "", "directory to write to (default DIR/NAME)")
	c.Flags().StringVar(&id, "id", "", "id of an existing node, when it gets a new certificate")
	c.Flags().IntVar(&days, "days", 365, "days until it expires")
	return c
}

func issue(ctx context.Context, dir, out, kind, name, id string, days int) (Issued, error) {
	ca, err := untilInterrupted(ctx, func() (*pki.Authority, error) { return pki.LoadAuthority(dir) })
	if err != nil {
		return Issued{}, err
	}
	subject := pki.Subject{Cluster: ca.Cluster(), Kind: pki.Kind(kind), ID: name}
	file := kind
	switch subject.Kind {
	case pki.KindNode:
		subject.ID = id
		if id == "" {
			subject.ID = ulid.Make().String()
		}
	case pki.KindAgent, pki.KindAdmin:
		if id != "" {
			return Issued{}, usagef("leave it out", "--id is for nodes; the id of an %s is its name", kind)
		}
	default:
		return Issued{}, usagef("usage: forgeyard pki issue node|agent|admin NAME", "unknown kind of certificate %q", kind)
	}
	if err := subject.Validate(); err != nil {
		return Issued{}, usagef("", "%s", err.Error())
	}
	issued, err := ca.Issue(subject, pki.Validity{NotAfter: time.Now().AddDate(0, 0, days)})
	if err != nil {
		return Issued{}, err
	}
	cert, key, err := issued.Write(out, file)
	if err != nil {
		return Issued{}, err
	}
	caFile := filepath.Join(out, pki.CAFile)
	if err := placeAuthority(caFile, ca.CertPEM()); err != nil {
		return Issued{}, err
	}
	return Issued{
		APIVersion: apiVersion, Kind: "Certificate", Cluster: ca.Cluster(), Subject: subject.String(), ID: subject.ID,
		Cert: cert, Key: key, CA: caFile, Expires: issued.Certificate.NotAfter.UTC(),
	}, nil
}

// placeAuthority puts the authority's certificate beside an issued one. The
// same certificate may be there already; another one is never replaced.
func placeAuthority(path string, pem []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		have, rerr := os.ReadFile(path)
		if rerr != nil {
			return fmt.Errorf("authority certificate: %w", rerr)
		}
		if string(have) != string(pem) {
			return &refusal{message: path + " is the certificate of another authority", hint: "choose another directory with --out"}
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("authority certificate: %w", err)
	}
	_, err = f.Write(pem)
	return errors.Join(err, f.Close())
}
