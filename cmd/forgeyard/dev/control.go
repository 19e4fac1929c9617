// The control socket of a running `forgeyard dev`: its sub-commands break and mend the fleet through it.

package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// socketName is the control socket inside the fleet's directory.
const socketName = "dev.sock"

// NodeStatus is one daemon as `forgeyard dev status` shows it.
type NodeStatus struct {
	Name     string `json:"name"`
	State    string `json:"state"` // running, paused, dead
	PID      int    `json:"pid"`
	Cut      bool   `json:"cut"` // partitioned from the other daemons
	Endpoint string `json:"endpoint"`
	Log      string `json:"log"`
}

// Status is the answer of GET /status.
type Status struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Dir        string       `json:"dir"`
	Nodes      []NodeStatus `json:"nodes"`
	Endpoints  []string     `json:"endpoints"`
}

// control serves the sub-commands while the fleet runs.
type control struct {
	srv  *http.Server
	done chan error
}

// openControl begins to serve; when it returns, the socket answers.
func openControl(f *fleet.Fleet) (*control, error) {
	l, err := net.Listen("unix", filepath.Join(f.Dir(), socketName))
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(statusOf(f)) // the client is gone
	})
	mux.HandleFunc("POST /{act}/{node}", func(w http.ResponseWriter, r *http.Request) {
		if err := act(r.Context(), f, r.PathValue("act"), r.PathValue("node")); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	c := &control{srv: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}, done: make(chan error, 1)}
	go func() { c.done <- c.srv.Serve(l) }() // close waits for it
	return c, nil
}

func (c *control) close() error {
	err := c.srv.Close()
	if served := <-c.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// act does one thing to one daemon.
func act(ctx context.Context, f *fleet.Fleet, what, name string) error {
	n, err := f.Node(name)
	if err != nil {
		return err
	}
	switch what {
	case "kill":
		return n.Kill()
	case "pause":
		return n.Pause(ctx)
	case "resume":
		return n.Resume(ctx)
	case "partition":
		return f.Partition(name, true)
	case "heal":
		return f.Heal(name)
	}
	return fmt.Errorf("unknown act %q", what)
}

func statusOf(f *fleet.Fleet) Status {
	s := Status{APIVersion: "forgeyard.dev/v1", Kind: "DevStatus", Dir: f.Dir()}
	for _, n := range f.Nodes() {
		s.Nodes = append(s.Nodes, NodeStatus{
			Name: n.Name, State: n.State(), PID: n.PID(), Cut: f.IsCut(n.Name), Endpoint: n.Endpoint(), Log: n.LogFile(),
		})
		s.Endpoints = append(s.Endpoints, n.Endpoint())
	}
	return s
}

// controlClient talks to the running fleet of this user.
type controlClient struct{ http http.Client }

var errNoFleet = errors.New("no fleet of `forgeyard dev` runs here: start one with `forgeyard dev`, or point FORGEYARD_DEV to its directory")

// errEnded is of a shell whose settings are older than the running fleet. What
// breaks a fleet must not take another one for it.
var errEnded = errors.New("the fleet that FORGEYARD_DEV names has ended and another one runs: eval \"$(forgeyard dev env)\"")

// connect finds the running fleet: $FORGEYARD_DEV, else the pointer file.
func connect() (*controlClient, error) {
	dir := os.Getenv("FORGEYARD_DEV")
	if dir == "" {
		return connectTo(pointedAt())
	}
	c, err := connectTo(dir)
	if err == nil {
		return c, nil
	}
	if _, other := connectTo(pointedAt()); other == nil {
		return nil, errEnded
	}
	return nil, err
}

// connectTo talks to the fleet in a directory, if one is there.
func connectTo(dir string) (*controlClient, error) {
	socket := filepath.Join(dir, socketName)
	if _, err := os.Stat(socket); dir == "" || err != nil {
		return nil, errNoFleet
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &controlClient{http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: 60 * time.Second}}, nil
}

func (c *controlClient) act(what, node string) error {
	resp, err := c.http.Post("http://dev/"+what+"/"+node, "", nil)
	if err != nil {
		return fmt.Errorf("%w (%w)", errNoFleet, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil || resp.StatusCode != http.StatusOK {
		return errors.Join(err, fmt.Errorf("%s %s: %s", what, node, strings.TrimSpace(string(body))))
	}
	return nil
}

func (c *controlClient) status() (Status, error) {
	var s Status
	resp, err := c.http.Get("http://dev/status")
	if err != nil {
		return s, fmt.Errorf("%w (%w)", errNoFleet, err)
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}
