// How the daemons of a fleet become a cluster: the first bootstraps, the others join with a token and are promoted.

package fleet

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/fsm"
)

// notReady is the code of a promotion that has to wait.
const notReady = "FY-MEMBER-002"

// readyBound is how long each step of the start may take.
const readyBound = 60 * time.Second

func (f *Fleet) startFirstNode(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	first := f.nodes[0]
	if err := first.start("--bootstrap"); err != nil {
		return err
	}
	if _, err := first.WaitStatus(ctx, "the first leader", func(s health.ClusterStatus) bool {
		return s.Leader.Node == first.ID && s.Leader.Epoch.Epoch > 0 && len(s.PostgreSQL.Writable) > 0 // join tokens need the database
	}); err != nil {
		return err
	}
	f.progress(first.Name, "leader", first.clusterAddr.String())
	return nil
}

// startOtherNodes starts all joiners at once; only the promotions are one by one.
func (f *Fleet) startOtherNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	for _, n := range f.nodes[1:] {
		if err := f.startJoiner(ctx, n); err != nil {
			return err
		}
	}
	for _, n := range f.nodes[1:] {
		if err := f.promote(ctx, n); err != nil {
			return err
		}
		f.progress(n.Name, "voter", n.clusterAddr.String())
	}
	return nil
}

func (f *Fleet) startJoiner(ctx context.Context, n *Node) error {
	var added membership.Added
	if err := f.nodes[0].insist(ctx, "/v1/cluster/add", membership.AddRequest{Node: n.ID, Name: n.Name}, &added); err != nil {
		return fmt.Errorf("token for %s: %w", n.Name, err)
	}
	token := filepath.Join(n.dir, "join-token")
	if err := os.WriteFile(token, []byte(added.Token), 0o600); err != nil {
		return err
	}
	return n.start("--join-token-file", token)
}

func (f *Fleet) promote(ctx context.Context, n *Node) error {
	if _, err := f.nodes[0].WaitStatus(ctx, n.Name+" to catch up", func(s health.ClusterStatus) bool {
		for _, m := range s.Members {
			if m.Node == n.ID {
				return m.State == fsm.Active
			}
		}
		return false
	}); err != nil {
		return err
	}
	return f.nodes[0].insist(ctx, "/v1/cluster/promote", membership.PromoteRequest{Node: n.Name}, nil)
}

// insist posts again while the daemon says that nothing happened and that it may
// yet: on a starved machine the leader may lose its majority for a moment, and the
// next one has heard of nobody's health.
func (n *Node) insist(ctx context.Context, path string, req, resp any) error {
	for {
		err := n.call(ctx, http.MethodPost, path, req, resp)
		if err == nil || !strings.Contains(err.Error(), `"retryable":true,"outcome_unknown":false`) && !strings.Contains(err.Error(), notReady) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// waitRoles returns once every role that some daemon can run is active.
func (f *Fleet) waitRoles(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	s, err := f.nodes[0].WaitStatus(ctx, "the roles", func(s health.ClusterStatus) bool {
		return s.Roles.Runnable > 0 && s.Roles.Active == s.Roles.Runnable
	})
	if err != nil {
		return err
	}
	f.progress("roles", "active", fmt.Sprintf("%d of %d", s.Roles.Active, s.Roles.Runnable))
	return nil
}
