// Which daemon an agent tries next: a list of endpoints whose names may stand for several addresses (§119, §121).

package runner

import (
	"context"
	"net"
)

// expand resolves the configured endpoints to addresses, in order and without
// repeats. A name that does not resolve now stays as it is, so that the dial's
// error names it.
func expand(ctx context.Context, endpoints []string, resolve func(context.Context, string) ([]string, error)) []string {
	if resolve == nil {
		resolve = net.DefaultResolver.LookupHost
	}
	var all []string
	seen := map[string]bool{}
	add := func(addr string) {
		if !seen[addr] {
			seen[addr] = true
			all = append(all, addr)
		}
	}
	for _, e := range endpoints {
		host, port, err := net.SplitHostPort(e)
		if err != nil || net.ParseIP(host) != nil {
			add(e)
			continue
		}
		addrs, err := resolve(ctx, host)
		if err != nil || len(addrs) == 0 {
			add(e)
			continue
		}
		for _, ip := range addrs {
			add(net.JoinHostPort(ip, port))
		}
	}
	return all
}
