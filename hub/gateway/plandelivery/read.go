// Package plandelivery serves machines their plans: the part of the Kubernetes Secret API that an agent needs to read, watch and update
// its own plan Secret. Reads and watches come from one cache for all machines. Writes are made with the hub's identity, after a check
// that a machine changes only the keys that are the agent's.
//
// What a machine may do is decided here and not by the rights of its token at the Kubernetes API, which has none. It must not decide what
// is in a plan.
package plandelivery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/util/response"
)

var secretResource = corev1.Resource("secrets")

// Options are what a Handler works with. All fields but Settle are needed.
type Options struct {
	// ServerURL is the URL of the hub, which discovery names.
	ServerURL string
	// Secrets holds the plan Secrets.
	Secrets *secretcache.Cache
	// Machines authenticates machines.
	Machines *Authenticator
	// Client writes with the hub's identity.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Version returns the version of the hub's Kubernetes API.
	Version func() (*version.Info, error)
	// Settle changes a plan Secret in place to what follows from the report in it, which is written together with the report. It sees and may
	// change data and annotations only; nil if nothing follows.
	Settle func(secret *corev1.Secret, now time.Time)
	// Logger of plan delivery.
	Logger logr.Logger
	// Drain says when watches have to end.
	Drain Drainer
}

// Drainer says when watches have to end.
type Drainer interface {
	// Draining is closed when watches have to move to other replicas, each after Delay, a random time.
	Draining() <-chan struct{}
	Delay() time.Duration
	// Stopping is closed when watches have to end at once.
	Stopping() <-chan struct{}
}

// Handler serves the part of the Kubernetes API that machines need. Each method answers one request of an authenticated machine; errors
// are to be answered as metav1.Status.
type Handler struct{ Options }

// cachedPlan returns the machine's Secret, or nil, and the version up to which everything about it was seen.
func (h *Handler) cachedPlan(m *Machine) (*corev1.Secret, uint64) {
	secret, version := h.Secrets.Plans.Get(m.Account)
	if secret != nil && !m.mayRead(secret) {
		return nil, version
	}
	return secret, version
}

// Get serves GET /api/v1/namespaces/{namespace}/secrets/{name}: the machine's plan Secret, as JSON. Another Secret is 403, and a plan
// Secret that does not exist 404.
func (h *Handler) Get(w http.ResponseWriter, r *http.Request, m *Machine) error {
	if err := m.owns(r.PathValue("namespace"), r.PathValue("name")); err != nil {
		return err
	}
	secret, _, err := h.readPlan(r.Context(), m)
	if err != nil {
		return err
	}
	response.WriteJSON(w, http.StatusOK, secret)
	return nil
}

// List serves GET /api/v1/namespaces/{namespace}/secrets with fieldSelector=metadata.name=<name of the plan Secret>: a SecretList as
// JSON, which is empty while the Secret does not exist. Any other selector is 403. It records that the agent was seen.
func (h *Handler) List(w http.ResponseWriter, r *http.Request, m *Machine) error {
	if err := h.selects(r, m, r.URL.Query()); err != nil {
		return err
	}
	secret, version, err := h.readPlan(r.Context(), m)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	list := corev1.SecretList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(version, 10)},
		Items:    []corev1.Secret{},
	}
	if secret != nil {
		list.Items = append(list.Items, *secret)
	}
	response.WriteJSON(w, http.StatusOK, list)
	return nil
}

// selects refuses a request for anything but the machine's plan Secret, and records that the agent was seen.
func (h *Handler) selects(r *http.Request, m *Machine, query url.Values) error {
	name, err := selectedName(query)
	if err == nil {
		err = m.owns(r.PathValue("namespace"), name)
	}
	if err == nil {
		h.recordSeen(r.Context(), m)
	}
	return err
}

// IsWatch reports whether a request with the query of its URL is for Watch, and not for List.
func IsWatch(query url.Values) bool {
	watch, _ := strconv.ParseBool(query.Get("watch"))
	return watch
}

// readPlan returns the machine's Secret from the cache, and the version up to which everything about it was seen. Where the cache has
// none, it is read from the API: it may have been created a moment ago.
func (h *Handler) readPlan(ctx context.Context, m *Machine) (*corev1.Secret, uint64, error) {
	if !h.Secrets.Plans.Synced() {
		return nil, 0, secretcache.ErrNotSynced
	}
	secret, version := h.cachedPlan(m)
	if secret != nil {
		return secret, version, nil
	}
	if err := h.fetchPlan(ctx, m); err != nil {
		return nil, version, err
	}
	if secret, version = h.cachedPlan(m); secret == nil {
		return nil, version, apierrors.NewNotFound(secretResource, m.Account.Name)
	}
	return secret, version, nil
}

// fetchPlan puts the machine's Secret into the cache as it is now.
func (h *Handler) fetchPlan(ctx context.Context, m *Machine) error {
	live := &corev1.Secret{}
	err := h.Live.Get(ctx, m.Account, live)
	switch {
	case apierrors.IsNotFound(err):
		return apierrors.NewNotFound(secretResource, m.Account.Name)
	case err != nil:
		return fmt.Errorf("reading plan Secret %s: %w", m.Account, err)
	case !m.mayRead(live):
		h.Logger.Info("Plan Secret refused: it was not created for this machine's RKEBootstrap", "Secret", m.Account, "RKEBootstrap",
			client.ObjectKeyFromObject(m.Bootstrap))
		return apierrors.NewNotFound(secretResource, m.Account.Name)
	case live.Type != rkev1.MachinePlanSecretType:
		return apierrors.NewForbidden(secretResource, m.Account.Name,
			fmt.Errorf("its type is %s, not %s", live.Type, rkev1.MachinePlanSecretType))
	}
	return h.Secrets.Plans.Observe(live)
}

// selectedName reads the name of the one Secret that a list is about.
func selectedName(query url.Values) (string, error) {
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return "", apierrors.NewBadRequest(fmt.Sprintf("fieldSelector: %v", err))
	}
	name, found := selector.RequiresExactMatch("metadata.name")
	if !found || len(selector.Requirements()) != 1 || query.Get("labelSelector") != "" {
		return "", apierrors.NewForbidden(secretResource, "", errors.New("only the fieldSelector metadata.name=<own plan Secret> is served"))
	}
	return name, nil
}
