// Validation: every fault at once, each at its line, with what to do about it (§185, §318–§321).

package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// Bounds of settings.
const (
	MaxLabel      = 64  // bytes of a node label or cluster name
	MaxSeeds      = 64  // seed addresses
	MaxSocketPath = 100 // bytes; the system's limit for unix sockets is 107
	RTTMargin     = 10  // the election timeout is at least this many round trips (§185)

	// MinTimer and MaxTimer bound each Raft timer after scaling.
	MinTimer = 20 * time.Millisecond
	MaxTimer = 10 * time.Second
)

// checker collects faults.
type checker struct {
	l      *Loaded
	faults Errors
}

func (l *Loaded) validate() Errors {
	c := &checker{l: l}
	c.cluster()
	c.timers()
	c.limits()
	c.addresses()
	c.api()
	c.paths()
	c.roles()
	c.bytes()
	l.Warnings = c.warnings()
	return c.faults
}

// fault records that a setting is wrong and points at where it was given.
func (c *checker) fault(code, path, hint, format string, args ...any) {
	message := path + ": " + fmt.Sprintf(format, args...)
	err := fmt.Errorf("%s", message)
	switch o := c.l.Origins[path]; {
	case o.Layer == FromConfigFile:
		err = o.value.Errorf("%s", message)
	case o.Layer != FromDefault && o.Place != "":
		err = fmt.Errorf("%s: %s", o.Place, message)
	}
	c.faults = append(c.faults, &Error{Code: code, Path: path, Hint: hint, Err: err})
}

func (c *checker) invalid(path, hint, format string, args ...any) {
	c.fault(CodeInvalid, path, hint, format, args...)
}

func (c *checker) cluster() {
	cl := c.l.Cluster
	c.label("cluster.node_id", cl.NodeID, true)
	c.label("cluster.name", cl.Name, false)
	if len(cl.Seeds) > MaxSeeds {
		c.invalid("cluster.seeds", "a few seeds are enough: they are for discovery only", "%d seeds; the limit is %d", len(cl.Seeds), MaxSeeds)
	}
	for i, seed := range cl.Seeds {
		path := c.item("cluster.seeds", i)
		if msg := badAddress(seed, false); msg != "" {
			c.invalid(path, "write host:port, for example \"10.0.0.11:7443\"", "%q %s", seed, msg)
		}
		if seed == cl.Listen {
			c.invalid(path, "list the other nodes only", "%q is this node's own address", seed)
		}
	}
}

// label checks a human name: it becomes part of log lines and table cells.
func (c *checker) label(path, s string, mayBeEmpty bool) {
	switch {
	case s == "" && mayBeEmpty:
	case s == "" || len(s) > MaxLabel:
		c.invalid(path, "", "must have 1 to %d bytes", MaxLabel)
	case strings.ContainsFunc(s, func(r rune) bool {
		return r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}):
		c.invalid(path, "a label names the node for people; the real id is minted once and kept in data_dir", "%q may have letters, digits, '-', '_' and '.' only", s)
	}
}

func (c *checker) timers() {
	t := c.l.Cluster.Timers
	if t.Multiplier < 0.2 || t.Multiplier > 20 {
		c.invalid("cluster.timers.multiplier", "", "%v must be between 0.2 and 20", t.Multiplier)
		return
	}
	hint := "set cluster.timers.multiplier to scale all three together"
	heartbeat, election, lease := t.Scaled()
	for _, x := range []struct {
		path string
		d    time.Duration
	}{{"heartbeat", heartbeat}, {"election", election}, {"lease", lease}} {
		if x.d < MinTimer || x.d > MaxTimer {
			c.invalid("cluster.timers."+x.path, hint, "%s must be between %s and %s", x.d, MinTimer, MaxTimer)
			return
		}
	}
	switch {
	case lease > heartbeat:
		c.invalid("cluster.timers.lease", hint, "%s must not exceed the heartbeat timeout %s: a deposed leader would still act", lease, heartbeat)
	case lease < heartbeat/4:
		c.invalid("cluster.timers.lease", hint, "%s must be at least a quarter of the heartbeat timeout %s, or two lost heartbeats depose the leader", lease, heartbeat)
	}
	if heartbeat > election {
		c.invalid("cluster.timers.election", hint, "%s must be at least the heartbeat timeout %s", election, heartbeat)
	}
	if t.MaxRTT <= 0 || t.MaxRTT > 10*time.Second {
		c.invalid("cluster.timers.max_rtt", "", "%s must be above 0 and at most 10s", t.MaxRTT)
	} else if election < RTTMargin*t.MaxRTT {
		c.invalid("cluster.timers.election", hint, "%s must be at least %d times max_rtt (%s), or healthy leaders are deposed", election, RTTMargin, t.MaxRTT)
	}
}

func (c *checker) limits() {
	l, s := c.l.Cluster.Limits, c.l.Cluster.Snapshots
	bound := func(path string, got, low, high int64) {
		if got < low || got > high {
			c.invalid("cluster."+path, "", "%d must be between %d and %d", got, low, high)
		}
	}
	bound("limits.connections", int64(l.Connections), 8, 65536)
	bound("limits.agents", int64(l.Agents), 1, 65536)
	bound("limits.body", int64(l.Body), 1<<10, 64<<20)
	// Below, snapshots would cost more than the log they spare; above, a start would read the log for minutes.
	bound("snapshots.entries", int64(s.Entries), 64, 1<<20)
	bound("snapshots.bytes", int64(s.Bytes), 64<<10, 1<<30)
}

func (c *checker) addresses() {
	for _, x := range [][2]string{{"cluster.listen", c.l.Cluster.Listen}, {"agents.listen", c.l.Agents.Listen}} {
		if msg := badAddress(x[1], true); msg != "" {
			c.invalid(x[0], "write address:port, for example \"127.0.0.1:7443\"", "%q %s", x[1], msg)
		}
	}
	if c.l.Cluster.Listen == c.l.Agents.Listen && !strings.HasSuffix(c.l.Agents.Listen, ":0") {
		c.invalid("agents.listen", "nodes and agents have a UDP socket each", "%q is also cluster.listen", c.l.Agents.Listen)
	}
	if msg := badAddress(c.l.HTTP.Listen, true); msg != "" {
		c.invalid("http.listen", "write address:port, for example \"127.0.0.1:7480\"", "%q %s", c.l.HTTP.Listen, msg)
	} else if !Loopback(c.l.HTTP.Listen) && !c.l.API.TLS {
		c.fault(CodeNotLoopback, "http.listen",
			"set api.tls: true and use admin certificates or tokens, or listen on 127.0.0.1 and use an SSH tunnel",
			"%q is not a loopback address: whoever reaches the API can run commands on every agent", c.l.HTTP.Listen)
	}
}

// Loopback reports whether a host:port can be reached from this machine only. A
// name other than localhost is not trusted to stay one.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// badAddress says what is wrong with a host:port; "" when nothing is.
func badAddress(addr string, listening bool) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "is not an address with a port"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "has no port between 0 and 65535"
	}
	if !listening && n == 0 {
		return "has port 0, which nobody can dial"
	}
	if host == "" {
		return "names no host"
	}
	if len(addr) > fsm.MaxEndpoint {
		return fmt.Sprintf("is longer than %d bytes", fsm.MaxEndpoint)
	}
	return ""
}

// api checks what api.* refers to; the key files themselves are read at the start.
func (c *checker) api() {
	for i, path := range c.l.API.Tokens.Keys {
		if !filepath.IsAbs(path) {
			c.invalid(c.item("api.tokens.keys", i), "", "%q is not an absolute path", path)
		}
	}
	for i, name := range c.l.API.Hosts {
		if name == "" || len(name) > maxHost || strings.ContainsFunc(name, func(r rune) bool {
			return r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		}) {
			c.invalid(c.item("api.hosts", i), "write a name alone, for example \"ci.example.org\"", "%q is not the name of a host", name)
		}
	}
}

const maxHost = 253 // bytes of a DNS name

// item is the path of one element of a list, or of the list when it did not come from a file.
func (c *checker) item(list string, i int) string {
	if path := fmt.Sprintf("%s[%d]", list, i); c.l.Origins[path].Layer != 0 {
		return path
	}
	return list
}

func (c *checker) paths() {
	if !filepath.IsAbs(c.l.DataDir) {
		if wd, err := os.Getwd(); err == nil && c.l.DataDir != "" {
			c.invalid("data_dir", "write "+filepath.Join(wd, c.l.DataDir), "%q is not an absolute path", c.l.DataDir)
		} else {
			c.invalid("data_dir", "", "%q is not an absolute path", c.l.DataDir)
		}
	}
	if len(c.l.Admin.Socket) > MaxSocketPath {
		c.invalid("admin.socket", "set admin.socket to a shorter path", "%q is longer than %d bytes", c.l.Admin.Socket, MaxSocketPath)
	}
}

func (c *checker) roles() {
	seen := map[fsm.Role]bool{}
	for _, r := range c.l.Roles {
		if seen[r] {
			c.invalid("roles", "", "%s is listed twice", r)
		}
		seen[r] = true
	}
}

// warnings are allowed combinations that deserve a word.
// bytes checks where bytes are kept and how long rows are.
func (c *checker) bytes() {
	if cas := c.l.CAS.URL; cas != "" {
		u, err := url.Parse(cas)
		switch {
		case err != nil || u.Scheme != "file" && u.Scheme != "s3":
			c.invalid("cas.url", "write file:///directory or s3://bucket/prefix?endpoint=host:port", "%q is no URL of a content store", cas)
		case u.User != nil:
			c.invalid("cas.url", "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "holds credentials")
		case u.Scheme == "file" && (u.Host != "" || !filepath.IsAbs(u.Path)):
			c.invalid("cas.url", "write file:///directory, with three slashes", "%q names no absolute directory", cas)
		}
	}
	for _, d := range []struct {
		path  string
		value time.Duration
		least time.Duration
	}{
		{"cas.grace", c.l.CAS.Grace, 2 * time.Hour}, {"cas.every", c.l.CAS.Every, time.Minute},
		{"retention.runs", c.l.Retention.Runs, time.Minute}, {"retention.events", c.l.Retention.Events, time.Minute},
	} {
		if d.value < d.least {
			c.invalid(d.path, "", "%s is below %s", d.value, d.least)
		}
	}
}

func (c *checker) warnings() []string {
	var w []string
	if c.l.Postgres.App.IsZero() && len(c.l.Roles) > 0 {
		w = append(w, "postgres.app is not set: this daemon keeps quorum but runs no role")
	}
	if c.l.CAS.URL == "" {
		w = append(w, "cas.url is not set: sources and artifacts are refused, and of a job's output only the tail is kept")
	}
	if c.l.Cluster.Mode == Standalone && len(c.l.Cluster.Seeds) > 0 {
		w = append(w, "cluster.seeds are ignored in Standalone mode")
	}
	return w
}
