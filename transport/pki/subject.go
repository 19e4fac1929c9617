// Subject: who a certificate speaks for, written as its only URI SAN (§57, §58).

package pki

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/forgeyard/forgeyard/fsm"
)

// Kind is what a certificate's holder is. The kinds have separate purposes:
// none is accepted in another's place (§58).
type Kind string

// The kinds of certificate holder.
const (
	KindNode  Kind = "node"  // a daemon; client and server authentication
	KindAgent Kind = "agent" // a runner; client authentication only
	KindAdmin Kind = "admin" // an operator; client authentication only
)

const (
	uriScheme = "forgeyard"
	maxID     = 64
)

// Subject names the holder of a certificate.
type Subject struct {
	Cluster fsm.ClusterID
	Kind    Kind
	ID      string // node: the text of a fsm.NodeID; agent, admin: 1 to 64 of [A-Za-z0-9._-]
}

// Node is the subject of a daemon.
func Node(c fsm.ClusterID, n fsm.NodeID) Subject {
	return Subject{Cluster: c, Kind: KindNode, ID: n.String()}
}

// NodeID gives the node's id; false unless the subject is a node.
func (s Subject) NodeID() (fsm.NodeID, bool) {
	if s.Kind != KindNode {
		return fsm.NodeID{}, false
	}
	id, err := fsm.ParseNodeID(s.ID)
	return id, err == nil
}

// String is the URI form, forgeyard://<cluster-id>/<kind>/<id>.
func (s Subject) String() string {
	return uriScheme + "://" + s.Cluster.String() + "/" + string(s.Kind) + "/" + s.ID
}

// Validate reports what is wrong with a subject.
func (s Subject) Validate() error {
	switch {
	case s.Cluster.IsZero():
		return fmt.Errorf("subject %s: no cluster id", s)
	case s.Kind == KindNode:
		id, err := fsm.ParseNodeID(s.ID)
		if err == nil && id.String() != s.ID {
			err = fmt.Errorf("node id %q is not the canonical form %q", s.ID, id)
		}
		return err
	case s.Kind != KindAgent && s.Kind != KindAdmin:
		return fmt.Errorf("subject %s: unknown kind %q", s, s.Kind)
	case len(s.ID) == 0 || len(s.ID) > maxID:
		return fmt.Errorf("subject %s: the id must have 1 to %d characters", s, maxID)
	}
	for _, r := range s.ID {
		if !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", r) {
			return fmt.Errorf("subject %s: character %q is not allowed in an id", s, r)
		}
	}
	return nil
}

// ParseSubject reads the URI form. Only the canonical text is accepted, so that
// two spellings never name one subject.
func ParseSubject(uri string) (Subject, error) {
	rest, ok := strings.CutPrefix(uri, uriScheme+"://")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return Subject{}, fmt.Errorf("%q is not of the form %s://<cluster-id>/<kind>/<id>", uri, uriScheme)
	}
	c, err := fsm.ParseClusterID(parts[0])
	if err != nil {
		return Subject{}, err
	}
	s := Subject{Cluster: c, Kind: Kind(parts[1]), ID: parts[2]}
	if err := s.Validate(); err != nil {
		return Subject{}, err
	}
	if s.String() != uri {
		return Subject{}, fmt.Errorf("%q is not the canonical form %q", uri, s)
	}
	return s, nil
}

// SubjectOf reads the subject of a certificate: it must carry exactly one URI SAN and no other name.
func SubjectOf(c *x509.Certificate) (Subject, error) {
	if len(c.URIs) != 1 || len(c.DNSNames)+len(c.IPAddresses)+len(c.EmailAddresses) != 0 {
		return Subject{}, ErrSAN.with(nil, "the certificate carries %d URI names and %d others; it must carry exactly one URI name",
			len(c.URIs), len(c.DNSNames)+len(c.IPAddresses)+len(c.EmailAddresses))
	}
	s, err := ParseSubject(c.URIs[0].String())
	if err != nil {
		return Subject{}, ErrSAN.with(err, "the certificate's name cannot be read")
	}
	if !carries(c, s) {
		return Subject{}, ErrSAN.with(nil, "the certificate carries another spelling of %s, or another name beside it", s)
	}
	return s, nil
}

// oidNames is the extension of subject alternative names (RFC 5280 §4.2.1.6), tagURI a name of it.
var oidNames = asn1.ObjectIdentifier{2, 5, 29, 17}

const tagURI = 6

// carries reports whether the certificate's names are the subject's text and
// nothing else, byte for byte: the parsed URI has lost what other spellings
// differ in, and the parser passes over names of kinds that it does not know.
func carries(c *x509.Certificate, s Subject) bool {
	want, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: tagURI, Bytes: []byte(s.String())}})
	return err == nil && slices.ContainsFunc(c.Extensions, func(e pkix.Extension) bool {
		return e.Id.Equal(oidNames) && bytes.Equal(e.Value, want)
	})
}

func (s Subject) uri() (*url.URL, error) { return url.Parse(s.String()) }
