package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

var errStarting = later(2*time.Second, "the hub is starting: its caches are not filled yet")

var secretResource = corev1.Resource("secrets")

// owns fails unless namespace and name are those of the machine's own plan Secret.
func (m *machine) owns(namespace, name string) error {
	if namespace == m.plan.Namespace && name == m.plan.Name {
		return nil
	}
	return apierrors.NewForbidden(secretResource, name, fmt.Errorf("this machine's Secret is %s", m.plan))
}

// mayRead tells whether a Secret under the name of the machine's plan was made for the machine. Somebody else may have made one of that name
// before the hub did; a machine that took it for its plan would run his commands.
func (m *machine) mayRead(secret *corev1.Secret) bool { return m.bootstrap.Owns(secret) }

// cachedPlan returns the machine's Secret, or nil, and the version up to which everything about it was seen.
func (s *Server) cachedPlan(m *machine) (*corev1.Secret, uint64) {
	secret, version := s.plans.get(m.plan)
	if secret != nil && !m.mayRead(secret) {
		return nil, version
	}
	return secret, version
}

// servePlanGet answers with the machine's Secret.
func (s *Server) servePlanGet(w http.ResponseWriter, r *http.Request, m *machine) {
	err := m.owns(r.PathValue("namespace"), r.PathValue("name"))
	var secret *corev1.Secret
	if err == nil {
		secret, _, err = s.readPlan(r.Context(), m)
	}
	if err != nil {
		s.writeStatus(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, secret)
}

// servePlanList answers with a list of the machine's Secret, or with the events of it.
func (s *Server) servePlanList(w http.ResponseWriter, r *http.Request, m *machine) {
	query := r.URL.Query()
	name, err := selectedName(query)
	if err == nil {
		err = m.owns(r.PathValue("namespace"), name)
	}
	if err != nil {
		s.writeStatus(w, r, err)
		return
	}
	s.recordSeen(r.Context(), m)
	if watch, _ := strconv.ParseBool(query.Get("watch")); watch {
		if err := s.watchPlan(w, r, m, query); err != nil {
			s.writeStatus(w, r, err)
		}
		return
	}
	secret, version, err := s.readPlan(r.Context(), m)
	if err != nil && !apierrors.IsNotFound(err) {
		s.writeStatus(w, r, err)
		return
	}
	list := corev1.SecretList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(version, 10)},
		Items:    []corev1.Secret{},
	}
	if secret != nil {
		list.Items = append(list.Items, *secret)
	}
	writeJSON(w, http.StatusOK, list)
}

// readPlan returns the machine's Secret from the cache, and the version up to which everything about it was seen. Where the cache has
// none, it comes from the API: it may have been made a moment ago.
func (s *Server) readPlan(ctx context.Context, m *machine) (*corev1.Secret, uint64, error) {
	if !s.plans.synced() {
		return nil, 0, errStarting
	}
	secret, version := s.cachedPlan(m)
	if secret != nil {
		return secret, version, nil
	}
	if err := s.fetchPlan(ctx, m); err != nil {
		return nil, version, err
	}
	if secret, version = s.cachedPlan(m); secret == nil {
		// It was deleted in between.
		return nil, version, apierrors.NewNotFound(secretResource, m.plan.Name)
	}
	return secret, version, nil
}

// fetchPlan puts the machine's Secret into the cache as it is now.
func (s *Server) fetchPlan(ctx context.Context, m *machine) error {
	live := &corev1.Secret{}
	err := s.opts.APIReader.Get(ctx, m.plan, live)
	switch {
	case apierrors.IsNotFound(err):
		return apierrors.NewNotFound(secretResource, m.plan.Name)
	case err != nil:
		return fmt.Errorf("reading plan Secret %s: %w", m.plan, err)
	case !m.mayRead(live):
		s.log.Info("Plan Secret refused: it was not made for this machine's RKEBootstrap", "Secret", m.plan, "RKEBootstrap", client.ObjectKeyFromObject(m.bootstrap))
		return apierrors.NewNotFound(secretResource, m.plan.Name)
	case live.Type != rkev1.MachinePlanSecretType:
		return apierrors.NewForbidden(secretResource, m.plan.Name, fmt.Errorf("it is no plan Secret but of type %s", live.Type))
	}
	return s.plans.observe(live)
}

// selectedName reads the one Secret that a list is about.
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
