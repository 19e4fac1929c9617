// Figures: what is counted, and that no collector can hold up a scrape.

package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
)

func TestMetrics(t *testing.T) {
	extra := prometheus.NewGauge(prometheus.GaugeOpts{Name: "forgeyard_extra", Help: "x"})
	extra.Set(42)
	_, base, _ := serve(t, Config{
		Version: Version{Version: "1.2.3", Commit: "abc", Go: "go1.26"}, Collectors: []prometheus.Collector{extra},
		Routes: []access.Route{
			route("GET", "/v1/runs/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }),
			route("GET", "/panic", func(http.ResponseWriter, *http.Request) { panic("x") }),
		},
	})
	for _, path := range []string{"/v1/runs/1", "/v1/runs/2", "/panic", "/none"} {
		send(t, http.DefaultClient, "GET", base+path, nil)
	}
	send(t, http.DefaultClient, "BREW", base+"/none", nil)
	send(t, http.DefaultClient, "DELETE", base+"/panic", nil)
	resp, body := send(t, http.DefaultClient, "GET", base+"/metrics", nil)
	require.Equal(t, 200, resp.StatusCode)
	for _, line := range []string{
		`forgeyard_http_requests_total{code="202",method="GET",route="/v1/runs/{id}"} 2`,
		`forgeyard_http_requests_total{code="500",method="GET",route="/panic"} 1`,
		`forgeyard_http_requests_total{code="404",method="other",route="unmatched"} 2`,
		`forgeyard_http_requests_total{code="405",method="other",route="unmatched"} 1`,
		`forgeyard_http_request_duration_seconds_count{method="GET",route="/v1/runs/{id}"} 2`,
		`forgeyard_build_info{commit="abc",go="go1.26",version="1.2.3"} 1`,
		`forgeyard_extra 42`, `forgeyard_sse_clients 0`, `forgeyard_metrics_incomplete_total 0`,
	} {
		require.Contains(t, body, line+"\n")
	}
	require.Contains(t, body, "go_goroutines ")
	require.NotContains(t, body, "BREW")
	_, err := New(Config{Admin: &net.UnixListener{}, Collectors: []prometheus.Collector{extra, extra}})
	require.ErrorContains(t, err, "metrics: ")
}

// slow answers when it is released.
type slow struct {
	desc    *prometheus.Desc
	release chan struct{}
	asked   atomic.Int32
}

func (s *slow) Describe(ch chan<- *prometheus.Desc) { ch <- s.desc }

func (s *slow) Collect(ch chan<- prometheus.Metric) {
	s.asked.Add(1)
	<-s.release
	ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, 7)
}

// broken panics.
type broken struct{ slow }

func (b *broken) Collect(chan<- prometheus.Metric) { panic("no database") }

func TestScrapeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hung := &slow{desc: prometheus.NewDesc("forgeyard_hung", "x", nil, nil), release: release}
		bad := &broken{slow{desc: prometheus.NewDesc("forgeyard_bad", "x", nil, nil)}}
		lazy := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "forgeyard_lazy", Help: "x"}, func() float64 { <-release; return 1 })
		good := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "forgeyard_good", Help: "x"}, func() float64 { return 5 })
		m, err := NewMetrics(Version{}, slog.New(slog.DiscardHandler), hung, bad, lazy, good)
		require.NoError(t, err)
		scrape := func() string {
			families, err := m.registry.Gather()
			require.NoError(t, err)
			var names []string
			for _, f := range families {
				names = append(names, f.GetName())
			}
			return strings.Join(names, " ")
		}
		begun := time.Now()
		names := scrape()
		require.LessOrEqual(t, time.Since(begun), CollectTimeout)
		require.Contains(t, names, "forgeyard_good")
		require.NotContains(t, names, "forgeyard_hung")
		require.NotContains(t, names, "forgeyard_lazy")
		require.NotContains(t, names, "forgeyard_bad")

		scrape()
		require.EqualValues(t, 1, hung.asked.Load(), "one that hangs is not asked again")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorContains(t, m.settle(gone), "does not end")
		close(release)
		require.NoError(t, m.settle(t.Context()))
		names = scrape()
		require.Contains(t, names, "forgeyard_hung")
		require.Contains(t, names, "forgeyard_lazy")
	})
}
