package usertokens

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/hub/util/response"
)

// Bounds of requests.
const (
	// DefaultTTL is the lifetime of a token for which none is requested.
	DefaultTTL = 15 * time.Minute
	// MaxTTL is for tokens that cannot be revoked, MaxPersistentTTL for those that can.
	MaxTTL           = time.Hour
	MaxPersistentTTL = 90 * 24 * time.Hour
	minTTL           = time.Minute

	maxDescription = 256
	maxBody        = 8 << 10
)

// Request asks for a token.
type Request struct {
	// Cluster is the name of a management Cluster, or namespace/name of a Cluster.
	Cluster string `json:"cluster"`
	// TTLSeconds is how long the token is valid; 0 for DefaultTTL.
	TTLSeconds int64 `json:"ttlSeconds,omitempty"`
	// Persistent asks for a token that has a Token, may be valid for up to MaxPersistentTTL, and can be revoked.
	Persistent bool `json:"lasting,omitempty"`
	// Description is free text for a persistent token.
	Description string `json:"description,omitempty"`
}

// Answer is an issued token.
type Answer struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expiresAt"`
	// Name is that of the Token of a persistent token.
	Name string `json:"name,omitempty"`
}

// Revoked is the answer for a token that was revoked.
type Revoked struct {
	Name string `json:"name"`
}

// read decodes a Request. Only the content type JSON is accepted, which no web page can send from a user's browser on his behalf.
func read(w http.ResponseWriter, r *http.Request) (*Request, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, response.Errorf(http.StatusUnsupportedMediaType, "send the request as Content-Type: application/json")
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	request := &Request{}
	if err := decoder.Decode(request); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, response.Errorf(http.StatusRequestEntityTooLarge, "the request is larger than %d bytes", maxBody)
		}
		return nil, badRequest("decoding the request failed: %s; write {\"cluster\": \"<namespace>/<name>\"}",
			strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, badRequest("unexpected data after the request")
	}
	return request, request.check()
}

func (r *Request) check() error {
	limit, hint := MaxTTL, "; longer-lived tokens need \"lasting\": true"
	if r.Persistent {
		limit, hint = MaxPersistentTTL, ""
	}
	switch ttl := r.TTLSeconds; {
	case r.Cluster == "":
		return badRequest("cluster is missing: write the name of a management Cluster, or <namespace>/<name> of a Cluster")
	case ttl != 0 && (ttl < int64(minTTL/time.Second) || ttl > int64(limit/time.Second)):
		return badRequest("ttlSeconds %d is not between %d and %d%s", ttl, int64(minTTL/time.Second), int64(limit/time.Second), hint)
	case r.Description != "" && !r.Persistent:
		return badRequest("description requires \"lasting\": true")
	case len(r.Description) > maxDescription:
		return badRequest("description is longer than %d bytes", maxDescription)
	}
	return nil
}

func (r *Request) ttl() time.Duration {
	if r.TTLSeconds == 0 {
		return DefaultTTL
	}
	return time.Duration(r.TTLSeconds) * time.Second
}

// key reads Cluster if that is namespace/name.
func (r *Request) key() (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(r.Cluster, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}
