package usertokens

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/connlimit"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/userauth"
)

const (
	// Path is where tokens are asked for.
	Path = "/v3/tokens"
	// maxConcurrent bounds how many requests are worked on at a time; each may cost the hub's Kubernetes three.
	maxConcurrent = 32
	answerTimeout = 30 * time.Second
	// maxGroups is what a Token may hold.
	maxGroups = 500
	// ofCredential begins the names of what the hub's Kubernetes adds to a user about the credential that was shown. It says nothing about the
	// new token.
	ofCredential = "authentication.kubernetes.io/"
)

// Handler answers POST at Path. How long a request may take to be sent is bounded by who mounts it.
type Handler struct {
	// Authenticator knows users. Those whose credential is for one audience, as the hub's own tokens are, get no token: it could renew itself
	// for ever.
	Authenticator authenticator.Request
	// Allowed tells whether a user may reach a cluster.
	Allowed func(ctx context.Context, u user.Info, cluster *managementv3.Cluster) (bool, error)
	Issue   Issue
	// Client reads from the cache and writes.
	Client client.Client
	Now    func() time.Time
	Logger logr.Logger

	slots chan struct{}
}

// NewHandler completes a Handler.
func NewHandler(h Handler) *Handler {
	h.slots = make(chan struct{}, maxConcurrent)
	if h.Now == nil {
		h.Now = time.Now
	}
	return &h
}

// refusal is an answer other than 200.
type refusal struct {
	code       int
	message    string
	retryAfter time.Duration
}

func (r *refusal) Error() string { return r.message }

func badRequest(format string, args ...any) error {
	return &refusal{code: http.StatusBadRequest, message: fmt.Sprintf(format, args...)}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(h.Now().Add(answerTimeout))
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	answer, err := h.answer(w, r.WithContext(ctx))
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	write(w, http.StatusOK, answer)
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request) (*Answer, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, &refusal{code: http.StatusMethodNotAllowed, message: "tokens are made with POST; they are listed and revoked as tokens.management.cattle.io"}
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return nil, badRequest("%s has no meaning here: a token is for who asks for it", name)
		}
	}
	if r.Header.Get("Upgrade") != "" {
		return nil, badRequest("a token is asked for by a plain request, without Upgrade")
	}
	// What strangers send, and whether they send it, holds no slot.
	request, err := read(w, r)
	if err != nil {
		return nil, err
	}
	end := credentialEnd(r)
	who, err := h.authenticate(r)
	if err != nil {
		return nil, err
	}
	connlimit.Trust(r.Context())
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		return nil, &refusal{code: http.StatusTooManyRequests, message: "too many tokens are asked for at the moment", retryAfter: time.Second}
	}
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
		// The same words in both cases: who may not reach a cluster does not learn whether it is there.
		return nil, &refusal{code: http.StatusForbidden, message: fmt.Sprintf("there is no cluster %s that user %q may reach; "+
			"the right that it takes is to get clusters/proxy in API group %s", request.Cluster, who.GetName(), "provisioning.cattle.io")}
	}
	held, err := h.tokensOf(r.Context(), who)
	if err != nil {
		return nil, err
	}
	if err := h.confirm(r.Context(), who, held); err != nil {
		return nil, err
	}
	if request.Lasting && len(held) >= MaxPerUser {
		return nil, &refusal{code: http.StatusForbidden, message: fmt.Sprintf("you have %d persistent tokens, which is the most that a user may have; "+
			"revoke those that are not needed with \"hub tokens revoke\"", len(held))}
	}
	return h.issue(r.Context(), carried(who), cluster, request)
}

func (h *Handler) authenticate(r *http.Request) (user.Info, error) {
	found, ok, err := h.Authenticator.AuthenticateRequest(r)
	switch {
	case errors.Is(err, userauth.ErrTooMany):
		return nil, &refusal{code: http.StatusTooManyRequests, message: err.Error(), retryAfter: 5 * time.Second}
	case errors.Is(err, userauth.ErrUnavailable):
		return nil, &refusal{code: http.StatusServiceUnavailable, message: userauth.ErrUnavailable.Error(), retryAfter: time.Second}
	case err != nil:
		h.Logger.V(1).Info("Somebody who asked for a token is not known", "reason", err.Error())
	}
	if err != nil || !ok || len(found.Audiences) > 0 {
		return nil, &refusal{code: http.StatusUnauthorized, message: "show a client certificate or a token of the hub's own Kubernetes; " +
			"tokens that the hub has made do not make others"}
	}
	return found.User, nil
}

func (h *Handler) issue(ctx context.Context, u user.Info, cluster *managementv3.Cluster, request *Request) (*Answer, error) {
	log := h.Logger.WithValues("user", u.GetName(), "cluster", cluster.Name)
	now := h.Now()
	if !request.Lasting {
		token, err := h.Issue(u, cluster.Name, request.ttl(), newID(), false)
		if err != nil {
			return nil, fmt.Errorf("signing a token: %w", err)
		}
		log.V(1).Info("Issued a short token", "ttl", request.ttl().String())
		return &Answer{Token: token, ExpiresAt: now.Add(request.ttl()).UTC().Truncate(time.Second)}, nil
	}
	if len(u.GetGroups()) > maxGroups {
		return nil, badRequest("you are in %d groups; a lasting token holds at most %d", len(u.GetGroups()), maxGroups)
	}
	token, object, err := Lasting{User: u, Cluster: cluster, TTL: request.ttl(), Description: request.Description}.Make(ctx, h.Client, h.Issue, now)
	if err != nil {
		return nil, err
	}
	log.Info("Issued a lasting token", "Token", object.Name, "expires", object.Spec.ExpiresAt.UTC().Format(time.RFC3339))
	return &Answer{Token: token, ExpiresAt: object.Spec.ExpiresAt.UTC().Truncate(time.Second), Name: object.Name}, nil
}

// cluster finds the management Cluster; nil where there is none.
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
			return nil, badRequest("cluster %q: its %s is none; write <namespace>/<name>", request.Cluster, field)
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

// carried is what of a user goes into a token.
func carried(u user.Info) user.Info {
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
	var refused *refusal
	if !errors.As(err, &refused) {
		if r.Context().Err() == nil {
			h.Logger.Error(err, "A token could not be issued")
		}
		refused = &refusal{code: http.StatusInternalServerError, message: "the hub could not answer this; its log tells why"}
	}
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(refused.code), Message: refused.message,
	}
	if refused.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(refused.retryAfter/time.Second)))
	}
	write(w, refused.code, status)
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
