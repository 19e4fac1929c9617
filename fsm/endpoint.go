// Endpoint validation (§14): host:port that can be dialled, of bounded length.

package fsm

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ParseEndpoint reads host:port: an IPv4 address, an IPv6 address in brackets
// or a DNS name, and a port from 1 to 65535, at most MaxEndpoint bytes.
// It resolves nothing.
func ParseEndpoint(s string) (Endpoint, error) {
	if err := Endpoint(s).Check(); err != nil {
		return "", err
	}
	return Endpoint(s), nil
}

// Check reports why the endpoint is malformed; nil when it is well formed. The
// empty endpoint is malformed.
func (e Endpoint) Check() error {
	s := string(e)
	if len(s) > MaxEndpoint {
		return fmt.Errorf("endpoint of %d bytes: the limit is %d", len(s), MaxEndpoint)
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return fmt.Errorf("endpoint %q: want host:port", s)
	}
	if err := checkPort(s[i+1:]); err != nil {
		return fmt.Errorf("endpoint %q: %w", s, err)
	}
	if err := checkHost(s[:i]); err != nil {
		return fmt.Errorf("endpoint %q: %w", s, err)
	}
	return nil
}

func checkPort(s string) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return fmt.Errorf("port %q is not a number from 1 to 65535", s)
	}
	return nil
}

func checkHost(s string) error {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		if !ok || err != nil || !a.Is6() {
			return fmt.Errorf("host %q is not an IPv6 address in brackets", s)
		}
		// A zone means something on one machine only. It may be of any bytes, and an
		// entry with text that is not UTF-8 would be committed and then read by nobody.
		if a.Zone() != "" {
			return fmt.Errorf("host %q has a zone, which other machines do not know", s)
		}
		return nil
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isHostLabel(label) {
			return fmt.Errorf("host %q is neither an address nor a DNS name", s)
		}
	}
	return nil
}

// isHostLabel also accepts the parts of an IPv4 address; whether such an
// address exists is for the dialler to find out, as for any name.
func isHostLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && !(c >= '0' && c <= '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
