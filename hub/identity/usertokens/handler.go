package usertokens

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/util/inflight"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/response"
)

const (
	// Path is where tokens are requested.
	Path = "/v3/tokens"
	// maxConcurrent bounds how many requests are worked on at the same time, since each may cost the hub's Kubernetes three, and maxPerUser
	// how many of them are of one user.
	maxConcurrent = 32
	maxPerUser    = maxConcurrent / 4
	answerTimeout = 30 * time.Second
	// maxGroups is what a Token may hold.
	maxGroups = 500
	// ofCredential is the prefix of the extra fields that the hub's Kubernetes adds about the credential of a request, which say nothing
	// about the new token.
	ofCredential = "authentication.kubernetes.io/"
)

// Handler serves POST and GET at Path, and DELETE at NamePath. How long a request may take to be sent is bounded by whoever mounts it.
type Handler struct {
	// Authenticator authenticates users. Those whose credential is for one audience, as the hub's own tokens are, get no token: it could
	// renew itself for ever.
	Authenticator authenticator.Request
	// Allowed reports whether a user may reach a cluster.
	Allowed func(ctx context.Context, u user.Info, cluster *managementv3.Cluster) (bool, error)
	Issue   Issue
	// Client reads from the cache and writes.
	Client client.Client
	Now    func() time.Time
	Logger logr.Logger

	slots *inflight.Limiter
}

// NewHandler returns a Handler with these fields. Now may be nil.
func NewHandler(h Handler) *Handler {
	h.slots = inflight.New(maxConcurrent, maxPerUser)
	if h.Now == nil {
		h.Now = time.Now
	}
	return &h
}

func badRequest(format string, args ...any) error {
	return response.Errorf(http.StatusBadRequest, format, args...)
}

// ServeHTTP serves POST /v3/tokens with a Request, as JSON, to users of the hub's Kubernetes who may reach the cluster: an Answer as
// JSON. GET is answered with the user's own persistent tokens, and DELETE /v3/tokens/{name} revokes one of them. Errors are a
// metav1.Status: 400 and 413 for a bad request, 401 for unknown users and holders of a token of the hub, 403 for clusters that the user may
// not reach or that do not exist, 404 for a token that the user does not have, 405 and 415, 429 with Retry-After for too many wrong
// credentials or concurrent requests, 503 if nobody can be authenticated.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	response.SetTimeout(w, answerTimeout)
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	answer, err := h.serve(w, r.WithContext(ctx))
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	response.WriteJSON(w, http.StatusOK, answer)
}

// serve returns the answer to a request.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) (any, error) {
	name := r.PathValue("name")
	switch {
	case name == "" && r.Method == http.MethodPost:
		return h.answer(w, r)
	case name == "" && r.Method == http.MethodGet:
		return h.own(r)
	case name == "":
		w.Header().Set("Allow", http.MethodGet+", "+http.MethodPost)
		return nil, response.Errorf(http.StatusMethodNotAllowed, "tokens are issued with POST, and listed with GET")
	case r.Method == http.MethodDelete:
		return h.revoke(r, name)
	}
	w.Header().Set("Allow", http.MethodDelete)
	return nil, response.Errorf(http.StatusMethodNotAllowed, "a token is revoked with DELETE")
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request) (*Answer, error) {
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return nil, badRequest("%s is not supported: a token is for the user who asks for it", name)
		}
	}
	if r.Header.Get("Upgrade") != "" {
		return nil, badRequest("tokens are requested without Upgrade")
	}
	// Requests that have not arrived or are not authenticated hold no slot.
	request, err := read(w, r)
	if err != nil {
		return nil, err
	}
	end := credentialEnd(r)
	who, release, err := h.authenticate(r)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := h.checkEnd(request, end); err != nil {
		return nil, err
	}
	cluster, err := h.cluster(r.Context(), request)
	if err != nil {
		return nil, err
	}
	allowed := false
	if cluster != nil {
		if allowed, err = h.Allowed(r.Context(), who, cluster); err != nil {
			return nil, fmt.Errorf("asking whether %s may reach %s: %w", who.GetName(), cluster.Name, err)
		}
	}
	if !allowed {
		// The same message in both cases: whoever may not reach a cluster does not learn whether it exists.
		return nil, response.Errorf(http.StatusForbidden, "there is no cluster %s that user %q may reach; "+
			"this requires the verb get on clusters/proxy in API group provisioning.cattle.io", request.Cluster, who.GetName())
	}
	held, expired, err := h.tokensOf(r.Context(), who)
	if err != nil {
		return nil, err
	}
	if err := h.removeExpired(r.Context(), expired); err != nil {
		h.Logger.Error(err, "Failed to delete expired persistent tokens", "user", who.GetName())
	}
	if err := h.confirm(r.Context(), who, held); err != nil {
		h.Logger.Error(err, "Failed to confirm persistent tokens", "user", who.GetName())
	}
	if request.Persistent && len(held) >= MaxPerUser {
		return nil, response.Errorf(http.StatusForbidden, "you have %d persistent tokens, which is the maximum; "+
			"revoke unused ones with \"hub tokens revoke\"", len(held))
	}
	return h.issue(r.Context(), withoutCredential(who), cluster, request)
}

func (h *Handler) issue(ctx context.Context, u user.Info, cluster *managementv3.Cluster, request *Request) (*Answer, error) {
	log := h.Logger.WithValues("user", u.GetName(), "cluster", cluster.Name)
	now := h.Now()
	if !request.Persistent {
		token, err := h.Issue(u, cluster.Name, request.ttl(), newID(), false)
		if err != nil {
			return nil, fmt.Errorf("signing a token: %w", err)
		}
		log.V(1).Info("Issued a short-lived token", "ttl", request.ttl().String())
		return &Answer{Token: token, ExpiresAt: now.Add(request.ttl()).UTC().Truncate(time.Second)}, nil
	}
	if len(u.GetGroups()) > maxGroups {
		return nil, badRequest("you are in %d groups; a persistent token holds at most %d", len(u.GetGroups()), maxGroups)
	}
	persistent := Persistent{User: u, Cluster: cluster, TTL: request.ttl(), Description: request.Description}
	token, object, err := persistent.Create(ctx, h.Client, h.Issue, now)
	if err != nil {
		return nil, err
	}
	log.Info("Issued a persistent token", "Token", object.Name, "expires", object.Spec.ExpiresAt.UTC().Format(time.RFC3339))
	return &Answer{Token: token, ExpiresAt: object.Spec.ExpiresAt.UTC().Truncate(time.Second), Name: object.Name}, nil
}

// cluster finds the management Cluster; nil if there is none.
func (h *Handler) cluster(ctx context.Context, request *Request) (*managementv3.Cluster, error) {
	key, named := request.key()
	if !named {
		cluster := &managementv3.Cluster{}
		err := h.Client.Get(ctx, client.ObjectKey{Name: request.Cluster}, cluster)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return cluster, err
	}
	for field, value := range map[string]string{"namespace": key.Namespace, "name": key.Name} {
		if problems := validation.IsValidLabelValue(value); value == "" || len(problems) > 0 {
			return nil, badRequest("cluster %q: invalid %s; write <namespace>/<name>", request.Cluster, field)
		}
	}
	var clusters managementv3.ClusterList
	err := h.Client.List(ctx, &clusters, client.MatchingLabels(ownership.Labels(key)))
	if err != nil {
		return nil, err
	}
	for i := range clusters.Items {
		if owned, err := ownership.ClusterOf(ctx, h.Client, &clusters.Items[i]); err != nil || owned != nil {
			return &clusters.Items[i], err
		}
	}
	return nil, nil
}

// withoutCredential is a user without what is known of the credential of a request.
func withoutCredential(u user.Info) user.Info {
	out := &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if strings.HasPrefix(key, ofCredential) {
			continue
		}
		if out.Extra == nil {
			out.Extra = map[string][]string{}
		}
		out.Extra[key] = values
	}
	return out
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	response.WriteStatus(w, err, func(err error) {
		if r.Context().Err() == nil {
			h.Logger.Error(err, "Issuing a token failed")
		}
	})
}
