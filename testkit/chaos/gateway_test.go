//go:build chaos

// An S3 server of somebody else's make, on a directory: versitygw, killed and started again at one address.

package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// versitygw is built from the module proxy at this version; the product does not depend on it.
const versitygw = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// The gateway's only account, and its bucket, which is a directory.
const (
	gatewayAccess = "forgeyard"
	gatewaySecret = "forgeyard-chaos-secret"
	gatewayBucket = "forge"
)

// gateway is one versitygw over one directory.
type gateway struct {
	binary, dir, addr string
	proc              *fleet.Process
}

// newGateway builds versitygw unless FORGEYARD_VERSITYGW names it, and starts it.
func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{binary: os.Getenv("FORGEYARD_VERSITYGW"), dir: t.TempDir()}
	if g.binary == "" {
		bin := t.TempDir()
		build := exec.Command("go", "install", versitygw)
		build.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=")
		text, err := build.CombinedOutput()
		require.NoError(t, err, string(text))
		g.binary = filepath.Join(bin, "versitygw")
	}
	for _, sub := range []string{"objects/" + gatewayBucket, "metadata"} {
		require.NoError(t, os.MkdirAll(filepath.Join(g.dir, sub), 0o700))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g.addr = l.Addr().String()
	require.NoError(t, l.Close())
	require.NoError(t, g.start(t.Context()))
	t.Cleanup(func() { _ = g.proc.Kill() })
	return g
}

// url is what a daemon's configuration names.
func (g *gateway) url() string {
	return "s3://" + gatewayBucket + "/chaos?insecure=true&region=us-east-1&endpoint=" + g.addr
}

// env holds the account for daemons.
func (g *gateway) env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + gatewayAccess, "AWS_SECRET_ACCESS_KEY=" + gatewaySecret}
}

// start runs the gateway and returns once it takes connections.
func (g *gateway) start(ctx context.Context) error {
	p, err := fleet.StartProcess("versitygw", g.binary,
		[]string{"--port", g.addr, "posix", "--sidecar", filepath.Join(g.dir, "metadata"), filepath.Join(g.dir, "objects")},
		[]string{"ROOT_ACCESS_KEY_ID=" + gatewayAccess, "ROOT_SECRET_ACCESS_KEY=" + gatewaySecret}, g.dir, filepath.Join(g.dir, "versitygw.log"))
	if err != nil {
		return err
	}
	g.proc = p
	ctx, done := context.WithTimeout(ctx, healing)
	defer done()
	for {
		c, err := net.Dial("tcp", g.addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-p.Done():
			text, _ := os.ReadFile(filepath.Join(g.dir, "versitygw.log"))
			return fmt.Errorf("versitygw ended with exit status %d: %s", p.ExitCode(), text)
		case <-ctx.Done():
			return fmt.Errorf("versitygw does not listen: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
