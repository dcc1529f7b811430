package usertokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Bounds of what can be asked for.
const (
	DefaultTTL = 15 * time.Minute
	// MaxTTL is for tokens that cannot be revoked, MaxLastingTTL for those that can.
	MaxTTL        = time.Hour
	MaxLastingTTL = 90 * 24 * time.Hour
	minTTL        = time.Minute

	maxDescription = 256
	maxBody        = 8 << 10
)

// Request asks for a token.
type Request struct {
	// Cluster is the name of a management Cluster, or namespace/name of a Cluster.
	Cluster string `json:"cluster"`
	// TTLSeconds is how long the token is good; 0 means DefaultTTL.
	TTLSeconds int64 `json:"ttlSeconds,omitempty"`
	// Lasting asks for a token that has a Token, may be good for long, and can be revoked.
	Lasting bool `json:"lasting,omitempty"`
	// Description is free text for a lasting token.
	Description string `json:"description,omitempty"`
}

// Answer is the token.
type Answer struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expiresAt"`
	// Name is that of the Token of a lasting token.
	Name string `json:"name,omitempty"`
}

// read reads a Request. Only JSON that says so is taken, which no page in somebody's browser can send on their behalf.
func read(w http.ResponseWriter, r *http.Request) (*Request, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, &refusal{code: http.StatusUnsupportedMediaType, message: "send the request as Content-Type: application/json"}
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	request := &Request{}
	if err := decoder.Decode(request); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, &refusal{code: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("the request is larger than %d bytes", maxBody)}
		}
		return nil, badRequest("the request cannot be read: %s; write {\"cluster\": \"<namespace>/<name>\"}", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, badRequest("there is something behind the request")
	}
	return request, request.check()
}

func (r *Request) check() error {
	limit, hint := MaxTTL, "; a token that lasts longer needs \"lasting\": true"
	if r.Lasting {
		limit, hint = MaxLastingTTL, ""
	}
	switch ttl := r.TTLSeconds; {
	case r.Cluster == "":
		return badRequest("cluster is missing: write the name of a management Cluster, or <namespace>/<name> of a Cluster")
	case ttl != 0 && (ttl < int64(minTTL/time.Second) || ttl > int64(limit/time.Second)):
		return badRequest("ttlSeconds %d is not between %d and %d%s", ttl, int64(minTTL/time.Second), int64(limit/time.Second), hint)
	case r.Description != "" && !r.Lasting:
		return badRequest("description is of use only with \"lasting\": true")
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

// key reads Cluster where that is namespace/name.
func (r *Request) key() (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(r.Cluster, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}
