package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/plans"
)

// maxUpdateBytes is above what a Secret of the largest size takes as JSON.
const maxUpdateBytes = 3 << 20

const fieldOwner = client.FieldOwner("drover-gateway")

// servePlanUpdate writes a machine's results into its Secret.
func (s *Server) servePlanUpdate(w http.ResponseWriter, r *http.Request, m *machine) {
	secret, err := s.updatePlan(w, r, m)
	if err != nil {
		s.writeStatus(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, secret)
}

func (s *Server) updatePlan(w http.ResponseWriter, r *http.Request, m *machine) (*corev1.Secret, error) {
	if err := m.owns(r.PathValue("namespace"), r.PathValue("name")); err != nil {
		return nil, err
	}
	if r.URL.Query().Has("dryRun") {
		return nil, apierrors.NewBadRequest("dryRun is not served")
	}
	sent, err := readSecret(w, r)
	if err != nil {
		return nil, err
	}
	if sent.Name != m.plan.Name || sent.Namespace != "" && sent.Namespace != m.plan.Namespace {
		return nil, apierrors.NewBadRequest("metadata: name and namespace must be those of the request's path")
	}
	current, err := s.comparable(r.Context(), m, sent)
	if err != nil {
		return nil, err
	}
	changes, err := agentChanges(current, sent)
	if err != nil {
		return nil, apierrors.NewForbidden(secretResource, m.plan.Name, err)
	}
	if len(changes) == 0 {
		return current, nil
	}
	written, err := s.writeChanges(r.Context(), current, changes)
	if err != nil {
		return nil, err
	}
	if err := s.plans.observe(written); err != nil {
		return nil, err
	}
	answer := *written
	answer.APIVersion, answer.Kind, answer.ManagedFields = "v1", "Secret", nil
	return &answer, nil
}

// comparable returns the Secret in the version that the machine has changed. It is a conflict when there is a newer one already.
// Without a version, the machine means whatever is there now.
func (s *Server) comparable(ctx context.Context, m *machine, sent *corev1.Secret) (*corev1.Secret, error) {
	current, _, err := s.readPlan(ctx, m)
	if err != nil {
		return nil, err
	}
	if sent.ResourceVersion != current.ResourceVersion {
		// Either side may be behind: ask the API before judging.
		if err := s.fetchPlan(ctx, m); err != nil {
			return nil, err
		}
		if current, _ = s.cachedPlan(m); current == nil {
			return nil, apierrors.NewNotFound(secretResource, m.plan.Name)
		}
	}
	switch {
	case sent.ResourceVersion != "" && sent.ResourceVersion != current.ResourceVersion:
		return nil, apierrors.NewConflict(secretResource, m.plan.Name, errors.New("the Secret has been changed since it was read; read it again and apply your changes to that"))
	case sent.UID != "" && sent.UID != current.UID:
		return nil, apierrors.NewConflict(secretResource, m.plan.Name, errors.New("the Secret was deleted and made again since it was read"))
	}
	return current, nil
}

// agentChanges returns what sent changes of current, by key of the data; nil is a key that is removed. Anything that is not the agent's
// to change is an error that names it.
func agentChanges(current, sent *corev1.Secret) (map[string]*[]byte, error) {
	if sent.Type != "" && sent.Type != current.Type {
		return nil, errors.New("a machine may not change the type of its Secret")
	}
	if (sent.Immutable != nil && *sent.Immutable) != (current.Immutable != nil && *current.Immutable) {
		return nil, errors.New("a machine may not change whether its Secret is immutable")
	}
	for _, kind := range []struct {
		name       string
		have, sent map[string]string
	}{{"label", current.Labels, sent.Labels}, {"annotation", current.Annotations, sent.Annotations}} {
		for _, key := range changedKeys(kind.have, kind.sent, func(a, b string) bool { return a == b }) {
			return nil, fmt.Errorf("a machine may not change the %s %s of its Secret", kind.name, key)
		}
	}
	data := maps.Clone(sent.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range sent.StringData {
		data[key] = []byte(value)
	}
	allowed := plans.AgentKeys()
	changes := map[string]*[]byte{}
	for _, key := range changedKeys(current.Data, data, slices.Equal) {
		if !slices.Contains(allowed, key) {
			return nil, fmt.Errorf("a machine may not change the key %s of its Secret", key)
		}
		if value, kept := data[key]; kept {
			changes[key] = &value
		} else {
			changes[key] = nil
		}
	}
	return changes, nil
}

// changedKeys lists, sorted, the keys that only one side has or that have different values.
func changedKeys[V any](a, b map[string]V, equal func(V, V) bool) []string {
	var changed []string
	for key, value := range a {
		if other, found := b[key]; !found || !equal(value, other) {
			changed = append(changed, key)
		}
	}
	for key := range b {
		if _, found := a[key]; !found {
			changed = append(changed, key)
		}
	}
	slices.Sort(changed)
	return changed
}

// writeChanges writes only the changed keys, and only if the Secret is still the one that was compared.
func (s *Server) writeChanges(ctx context.Context, current *corev1.Secret, changes map[string]*[]byte) (*corev1.Secret, error) {
	metadata := map[string]any{"uid": current.UID, "resourceVersion": current.ResourceVersion}
	if seen := seenAnnotation(current, time.Now()); seen != nil {
		metadata["annotations"] = seen
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "data": changes})
	if err != nil {
		return nil, fmt.Errorf("encoding the changes of a plan Secret: %w", err)
	}
	written := &corev1.Secret{}
	written.Namespace, written.Name = current.Namespace, current.Name
	if err := s.opts.Client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		return nil, err
	}
	return written, nil
}

// decoder reads what clients of the Kubernetes API send: JSON, and protobuf from those that are built on newer libraries.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Secret{})
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}()

var mediaTypes = []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf}

// readSecret decodes the body of an update.
func readSecret(w http.ResponseWriter, r *http.Request) (*corev1.Secret, error) {
	if sent := r.Header.Get("Content-Type"); sent != "" {
		if mediaType, _, err := mime.ParseMediaType(sent); err != nil || !slices.Contains(mediaTypes, mediaType) {
			return nil, refuse(http.StatusUnsupportedMediaType, "a Secret is taken as %s, not as %q", strings.Join(mediaTypes, " or "), sent)
		}
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(answerTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxUpdateBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d bytes", tooLarge.Limit))
	case err != nil:
		return nil, apierrors.NewBadRequest("the request was not sent to its end")
	}
	_ = control.SetReadDeadline(time.Time{})
	return decodeSecret(body)
}

// decodeSecret never says what is wrong with a body, since that could quote the Secret.
func decodeSecret(body []byte) (*corev1.Secret, error) {
	kind := corev1.SchemeGroupVersion.WithKind("Secret")
	decoded, _, err := decoder.Decode(body, &kind, nil)
	secret, ok := decoded.(*corev1.Secret)
	if err != nil || !ok || len(body) == 0 {
		return nil, apierrors.NewBadRequest("the body is not a Secret of v1")
	}
	return secret, nil
}
