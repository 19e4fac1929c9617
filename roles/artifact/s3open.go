// Reaching an S3 store: its URL, credentials, deadlines, marker, and what its errors mean.

package artifact

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Bounds of one request to an S3 store. A transfer may take any time as long as bytes move.
const (
	s3Dial    = 3 * time.Second
	s3Answer  = 10 * time.Second // from the end of the request to the header of the answer
	s3Stall   = 20 * time.Second // without one byte moving
	s3Retries = 3                // of a request, with growing pauses of less than a second
	s3Idle    = 30 * time.Second // before an unused connection is closed
)

func openS3(u *url.URL, owner fsm.ClusterID, opts Options) (*s3Store, error) {
	q := u.Query()
	for k := range q {
		switch k {
		case "endpoint", "region", "insecure":
		default:
			return nil, ErrURL.Wrap(nil, "an s3 store's URL has the parameters endpoint, region and insecure, no others")
		}
	}
	insecure := q.Get("insecure")
	if u.Host == "" || insecure != "" && insecure != "true" && insecure != "false" {
		return nil, ErrURL.Wrap(nil, "an s3 store's URL is s3://bucket/prefix?endpoint=host:port&region=name&insecure=true|false")
	}
	endpoint := q.Get("endpoint")
	if endpoint == "" {
		endpoint = "s3.amazonaws.com"
	}
	region := q.Get("region")
	if region == "" {
		region = "us-east-1" // a fixed one, so that no request is spent on asking for it
	}
	transport := newTransport(opts)
	client, err := minio.NewCore(endpoint, &minio.Options{
		Creds: chooseCredentials(opts), Secure: insecure != "true", Transport: transport, Region: region,
		MaxRetries: s3Retries, BucketLookup: minio.BucketLookupAuto,
	})
	if err != nil {
		return nil, ErrURL.Wrap(nil, "the endpoint of the s3 store's URL is no host:port") // the library repeats it
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		prefix += "/"
	}
	s := &s3Store{client: client, close: transport.CloseIdleConnections, bucket: u.Host, prefix: prefix, spool: opts.Spool, owner: owner}
	s.admit.check = s.claim
	return s, nil
}

func newTransport(opts Options) *http.Transport {
	dialer := &net.Dialer{Timeout: s3Dial}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &movingConn{c}, nil
		},
		TLSClientConfig: opts.TLS, TLSHandshakeTimeout: s3Dial, ResponseHeaderTimeout: s3Answer,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: s3Idle, DisableCompression: true,
	}
}

// movingConn breaks when no byte moves for s3Stall, so that a silent server ends no caller's patience but its own.
type movingConn struct{ net.Conn }

func (c *movingConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(s3Stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *movingConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(s3Stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func chooseCredentials(opts Options) *credentials.Credentials {
	if opts.Credentials != nil {
		return credentials.New(&given{read: opts.Credentials})
	}
	return credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}})
}

// given are credentials read by the caller's function.
type given struct{ read func() (Credentials, error) }

// Retrieve implements credentials.Provider.
func (g *given) Retrieve() (credentials.Value, error) {
	c, err := g.read()
	return credentials.Value{
		AccessKeyID: c.AccessKey, SecretAccessKey: c.SecretKey, SessionToken: c.SessionToken, SignerType: credentials.SignatureV4,
	}, err
}

// RetrieveWithCredContext implements credentials.Provider.
func (g *given) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return g.Retrieve()
}

// IsExpired implements credentials.Provider.
func (g *given) IsExpired() bool { return false }

// claim checks the marker, and makes it in a place that nobody has used. The
// marker is put only where there is none, so of two clusters that meet at an
// empty prefix one wins and the other is told.
func (s *s3Store) claim(ctx context.Context) error {
	err := s.checkMarker(ctx)
	if !errors.Is(err, errMarkerless) {
		return err
	}
	for o := range s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.blobs(), Recursive: true, MaxKeys: 1}) {
		if o.Err != nil {
			return explainS3(o.Err)
		}
		return ErrOtherCluster.Wrap(nil, "bucket %s holds blobs under %q but no marker of the cluster that owns them", s.bucket, s.prefix)
	}
	opts := putOptions()
	opts.SetMatchETagExcept("*")
	text := s.owner.String() + "\n"
	_, err = s.client.Client.PutObject(ctx, s.bucket, s.marker(), strings.NewReader(text), int64(len(text)), opts)
	if err != nil && !lostToAnother(err) {
		return explainS3(err)
	}
	return s.checkMarker(ctx)
}

// errMarkerless tells claim that nobody owns the place. To everyone else it is
// ErrUnavailable: a store that was in use and has no marker may be just being restored.
var errMarkerless = errors.New("no object with the cluster's marker")

func (s *s3Store) marker() string { return s.prefix + markerName }

func (s *s3Store) checkMarker(ctx context.Context) error {
	body, _, _, err := s.client.GetObject(ctx, s.bucket, s.marker(), minio.GetObjectOptions{})
	if isNoKey(err) {
		return ErrUnavailable.Wrap(errMarkerless, "the artifact store's marker is gone")
	}
	if err != nil {
		return explainS3(err)
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, 64))
	if err != nil {
		return explainS3(err)
	}
	if other := strings.TrimSpace(string(b)); other != s.owner.String() {
		return ErrOtherCluster.Wrap(nil, "bucket %s belongs under %q to cluster %.40q", s.bucket, s.prefix, other)
	}
	return nil
}

// explainS3 gives an error of the client its place among the store's errors.
func explainS3(err error) error {
	var known *cluster.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	switch answer := minio.ToErrorResponse(err); answer.Code {
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoSuchBucket", "AuthorizationHeaderMalformed",
		"InvalidToken", "AllAccessDisabled", "AccountProblem", "PermanentRedirect", "InvalidBucketName":
		return ErrRefused.Wrap(err, "")
	case "XMinioStorageFull", "QuotaExceeded":
		return ErrFull.Wrap(err, "")
	}
	return ErrUnavailable.Wrap(err, "")
}

// explainContext is the error of a listing that ended with its context, which the client does not report.
func explainContext(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return ErrUnavailable.Wrap(err, "")
	}
	return nil
}

func isNoKey(err error) bool { return err != nil && minio.ToErrorResponse(err).Code == minio.NoSuchKey }

// lostToAnother reports whether a conditional put found the object made by another.
func lostToAnother(err error) bool {
	code := minio.ToErrorResponse(err).Code
	return code == "PreconditionFailed" || code == "ConditionalRequestConflict"
}
