// forgeyard cluster add|promote: let a node in, give it a vote.

package cli

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
)

func (a *app) addCommand() *cobra.Command {
	var name, file string
	var ttl time.Duration
	c := &cobra.Command{
		Use: "add NODE", Short: "Make a join token for a new node", Args: args(1, 1, "NODE"),
		Long: "Make a join token. NODE is the id that pki issue printed, or the path of the certificate it wrote.\n" +
			"The token is shown once, works once, for this node only, and expires. The node joins as a learner.",
		Example: "  forgeyard cluster add pki/node-d/node.crt --name node-d\n  forgeyard cluster add pki/node-d/node.crt --token-file token",
		RunE: func(c *cobra.Command, given []string) error {
			node, err := untilInterrupted(c.Context(), func() (fsm.NodeID, error) { return nodeID(given[0]) })
			if err != nil {
				return err
			}
			req := membership.AddRequest{Node: node, Name: name, TTL: ttl.String()}
			var added membership.Added
			err = a.call(c.Context(), func(ctx context.Context, c *client.Client) error {
				return c.Post(ctx, "/v1/cluster/add", "", req, &added)
			})
			if err != nil {
				return err
			}
			return a.showToken(added, file)
		},
	}
	c.Flags().StringVar(&name, "name", "", "label of the node")
	c.Flags().StringVar(&file, "token-file", "", "write the token to this new file (0600) instead of showing it")
	c.Flags().DurationVar(&ttl, "ttl", membership.DefaultTokenTTL, "how long the token is valid, at most "+membership.MaxTokenTTL.String())
	return c
}

// nodeID reads an id, or takes it from a node's certificate.
func nodeID(s string) (fsm.NodeID, error) {
	if id, err := fsm.ParseNodeID(s); err == nil {
		return id, nil
	}
	hint := "give the id that forgeyard pki issue printed, or the path of the node's certificate"
	b, err := os.ReadFile(s)
	if err != nil {
		return fsm.NodeID{}, usagef(hint, "%q is neither a node id nor a readable certificate", s)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return fsm.NodeID{}, usagef(hint, "%s is not a certificate", s)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fsm.NodeID{}, usagef(hint, "%s is not a certificate", s)
	}
	subject, err := pki.SubjectOf(cert)
	if err != nil {
		return fsm.NodeID{}, err
	}
	id, ok := subject.NodeID()
	if !ok {
		return fsm.NodeID{}, usagef(hint, "%s is the certificate of an %s, not of a node", s, subject.Kind)
	}
	return id, nil
}

// showToken shows the token once, or writes it to a file and shows it nowhere.
func (a *app) showToken(added membership.Added, file string) error {
	where := "TOKEN-FILE"
	if file != "" {
		if err := writeSecret(file, added.Token); err != nil {
			return err
		}
		where, added.Token = file, ""
	}
	return a.print(result{doc: added, names: []string{"node/" + added.Node.String()}, draw: func(p *painter) {
		expires := span(added.TTLSeconds * 1000)
		if file == "" {
			p.line("%s", added.Token)
			p.prose("this token is shown once; it lets node %s join within %s", added.Node.String(), expires)
			p.line("next, on that node, with the token in a file: forgeyard daemon --join-token-file %s", where)
		} else {
			p.line("wrote %s; it lets node %s join within %s", file, added.Node.String(), expires)
			p.line("next, on that node: forgeyard daemon --join-token-file %s", where)
		}
		p.line("then: forgeyard cluster promote %s", added.Node.String())
	}})
}

func writeSecret(path, secret string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	_, err = fmt.Fprintln(f, secret)
	return errors.Join(err, f.Close())
}

func (a *app) promoteCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "promote NODE", Short: "Make a caught-up learner a voter", Args: args(1, 1, "NODE"),
		Long: "Make a caught-up learner a voter. NODE is a name, an id or a unique prefix of an id.\n" +
			"Going from one voter to two asks first: with two, losing either stops writes.",
		RunE: func(c *cobra.Command, given []string) error {
			before, err := a.status(c.Context())
			if err != nil {
				return err
			}
			if before.Quorum.VotersTotal == 1 && !isVoter(before, given[0]) {
				err := a.confirm(c.Context(), yes, "with two voters, losing either one stops all writes; promote a third one soon", "Promote "+clean(given[0])+"?")
				if err != nil {
					return err
				}
			}
			var p membership.Promoted
			err = a.call(c.Context(), func(ctx context.Context, c *client.Client) error {
				return c.Post(ctx, "/v1/cluster/promote", "", membership.PromoteRequest{Node: given[0]}, &p)
			})
			if err != nil {
				return err
			}
			return a.print(promoted(p, before))
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func isVoter(s health.ClusterStatus, node string) bool {
	for _, m := range s.Members {
		if m.Name == node || m.Node.String() == node {
			return m.Role == fsm.Voter
		}
	}
	return false
}

func promoted(r membership.Promoted, before health.ClusterStatus) result {
	return result{doc: r, names: []string{"member/" + r.Name}, draw: func(p *painter) {
		if r.Already {
			p.line("%s is a voter already; nothing was changed", r.Name)
			return
		}
		p.line("promoted %s", r.Name)
		p.table([]column{{head: ""}, {head: "VOTERS"}, {head: "QUORUM"}, {head: "CAN LOSE"}}, [][]cell{
			tolerance("before", before.Quorum.VotersTotal), tolerance("after", r.Voters),
		})
	}}
}

// tolerance is a row of a before/after table: what so many healthy voters survive.
func tolerance(label string, voters int) []cell {
	return cells(label, fmt.Sprint(voters), fmt.Sprint(voters/2+1), fmt.Sprint((voters-1)/2))
}
