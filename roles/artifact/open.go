// Opening a store by its URL.

package artifact

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/forgeyard/forgeyard/fsm"
)

// Options are what a URL does not say.
type Options struct {
	// Credentials reads those of an s3 store when they are first needed. nil = the
	// environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN) or
	// the shared AWS credentials file.
	Credentials func() (Credentials, error)

	Spool  string       // directory where an s3 store hashes large uploads before it sends them; "" = os.TempDir()
	TLS    *tls.Config  // trust of an s3 store; nil = the system's
	Logger *slog.Logger // nil = discard
}

// Credentials of an s3 store.
type Credentials struct {
	AccessKey, SecretKey, SessionToken string
}

// String keeps the secrets out of logs.
func (Credentials) String() string { return "REDACTED" }

// GoString keeps the secrets out of %#v.
func (Credentials) GoString() string { return "REDACTED" }

// Open opens the store at a URL for one cluster:
//
//	file:///directory
//	s3://bucket/prefix?endpoint=host:port&region=name&insecure=true
//
// A store that no cluster has used becomes this cluster's; another's is refused
// with ErrOtherCluster. A store that cannot be reached is no error: its calls
// answer ErrUnavailable, and the cluster is checked as soon as it answers.
func Open(ctx context.Context, rawURL string, cluster fsm.ClusterID, opts Options) (Store, error) {
	if cluster.IsZero() {
		return nil, errors.New("artifact: no cluster id")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Spool == "" {
		opts.Spool = os.TempDir()
	}
	s, err := open(rawURL, cluster, opts)
	if err != nil {
		return nil, err
	}
	if err := s.Health(ctx); err != nil {
		if !Retryable(err) {
			return nil, errors.Join(err, s.Close())
		}
		opts.Logger.Warn("the artifact store does not answer yet", "error", err)
	}
	return s, nil
}

func open(rawURL string, cluster fsm.ClusterID, opts Options) (Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, ErrURL.Wrap(nil, "the artifact store's URL is malformed") // its text may hold a secret
	}
	if u.User != nil {
		return nil, ErrURL.Wrap(nil, "the artifact store's URL must not hold credentials")
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" {
			return nil, ErrURL.Wrap(nil, "a file store's URL is file:// and an absolute directory, nothing else")
		}
		return openFile(filepath.Clean(u.Path), cluster), nil
	case "s3":
		return openS3(u, cluster, opts)
	}
	return nil, ErrURL.Wrap(nil, "the artifact store's URL is of neither kind: file:///directory or s3://bucket")
}

// admission lets calls through once the store was seen to belong to this
// cluster, and asks again before each call until then.
type admission struct {
	check func(context.Context) error
	mu    sync.Mutex
	seen  bool
}

func (a *admission) pass(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen {
		return nil
	}
	if err := a.check(ctx); err != nil {
		return err
	}
	a.seen = true
	return nil
}
