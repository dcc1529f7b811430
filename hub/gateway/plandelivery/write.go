package plandelivery

import (
	"context"
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

	"github.com/drover-dev/drover/hub/util/connlimit"
	"github.com/drover-dev/drover/hub/util/response"
	"github.com/drover-dev/drover/plans"
)

// MaxUpdateBytes is above what a Secret of the largest size takes as JSON.
const MaxUpdateBytes = 3 << 20

// AnswerTimeout is how long a machine may take to read its plan Secret, as an answer or an event, and before that to send an update: 1.4 MB
// take three minutes over a link of 64 kbit/s.
var AnswerTimeout = time.Minute + connlimit.BodyTime(MaxUpdateBytes)

// Update serves PUT /api/v1/namespaces/{namespace}/secrets/{name} with a Secret as JSON or protobuf: it writes the machine's results, and
// what follows from them, into its plan Secret and answers with the Secret as JSON. A change of anything but plans.AgentKeys is 403 and
// names what it was, a Secret that has changed since it was read, but for its metadata, the applied plan and the agent's upgrade, is 409,
// one of more than MaxUpdateBytes 413, and another media type 415.
func (h *Handler) Update(w http.ResponseWriter, r *http.Request, m *Machine) error {
	secret, err := h.updatePlan(w, r, m)
	if err != nil {
		return err
	}
	response.WriteJSON(w, http.StatusOK, secret)
	return nil
}

func (h *Handler) updatePlan(w http.ResponseWriter, r *http.Request, m *Machine) (*corev1.Secret, error) {
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
	if sent.Name != m.Account.Name || sent.Namespace != "" && sent.Namespace != m.Account.Namespace {
		return nil, apierrors.NewBadRequest("metadata: name and namespace must be those of the request's path")
	}
	written, err := h.writeReport(r.Context(), m, sent)
	if err != nil {
		return nil, err
	}
	if err := h.Secrets.Plans.Observe(written); err != nil {
		return nil, err
	}
	answer := *written
	answer.APIVersion, answer.Kind, answer.ManagedFields = "v1", "Secret", nil
	return &answer, nil
}

// maxWrites is how often a report is written. The API server refuses it where the hub writes something else into the Secret just before.
const maxWrites = 3

// writeReport writes what sent changes, and returns the Secret as it is then.
func (h *Handler) writeReport(ctx context.Context, m *Machine, sent *corev1.Secret) (*corev1.Secret, error) {
	for writes := 1; ; writes++ {
		current, err := h.current(ctx, m, sent)
		if err != nil {
			return nil, err
		}
		changes, err := agentChanges(current, sent)
		if err != nil {
			return nil, apierrors.NewForbidden(secretResource, m.Account.Name, err)
		}
		if len(changes) == 0 {
			return current, nil
		}
		dropStates(current.Data, changes)
		written, err := h.writeChanges(ctx, current, changes)
		if !apierrors.IsConflict(err) || writes == maxWrites {
			return written, err
		}
		if err := h.fetchPlan(ctx, m); err != nil {
			return nil, err
		}
	}
}

// current returns the Secret that the machine has changed, and a conflict if it was changed since the machine has read it. A Secret without
// a version is compared with the newest. What the hub notes in metadata, as the applied plan or for an upgrade of the agent while a machine
// makes its report is no reason for a conflict: Rancher's agent exits on one and applies its plan again. Sent is given these as they are
// now.
func (h *Handler) current(ctx context.Context, m *Machine, sent *corev1.Secret) (*corev1.Secret, error) {
	current, _, err := h.readPlan(ctx, m)
	if err != nil {
		return nil, err
	}
	if sent.ResourceVersion != current.ResourceVersion {
		// Either side may be behind: the API decides.
		if err := h.fetchPlan(ctx, m); err != nil {
			return nil, err
		}
		if current, _ = h.cachedPlan(m); current == nil {
			return nil, apierrors.NewNotFound(secretResource, m.Account.Name)
		}
	}
	switch {
	case sent.UID != "" && sent.UID != current.UID:
		return nil, apierrors.NewConflict(secretResource, m.Account.Name,
			errors.New("the Secret was deleted and created again since it was read"))
	case sent.ResourceVersion == "" || sent.ResourceVersion == current.ResourceVersion:
	case h.Secrets.Plans.Unchanged(m.Account, sent.ResourceVersion):
		bringUpToDate(sent, current)
	default:
		return nil, apierrors.NewConflict(secretResource, m.Account.Name,
			errors.New("the Secret has been changed since it was read; read it again and apply your changes to that"))
	}
	return current, nil
}

// bringUpToDate gives sent what the hub has changed in current without a conflict.
func bringUpToDate(sent, current *corev1.Secret) {
	sent.Labels, sent.Annotations = current.Labels, current.Annotations
	for _, key := range []string{plans.KeyAppliedPlan, plans.KeyAgentUpgrade} {
		if value, found := current.Data[key]; !found {
			delete(sent.Data, key)
		} else if sent.Data != nil {
			sent.Data[key] = value
		}
	}
}

// agentChanges returns what sent changes in current, by key of the data; nil for a key that is removed. A change of anything that is not
// the agent's is an error that names it.
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
		changes[key] = valueOf(data, key)
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

// decoder reads what clients of the Kubernetes API send: JSON, and protobuf from those that use newer libraries.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Secret{})
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}()

var mediaTypes = []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf}

// readSecret decodes the body of an update, which must arrive within AnswerTimeout, and sets until when the answer must be read.
func readSecret(w http.ResponseWriter, r *http.Request) (*corev1.Secret, error) {
	if sent := r.Header.Get("Content-Type"); sent != "" {
		if mediaType, _, err := mime.ParseMediaType(sent); err != nil || !slices.Contains(mediaTypes, mediaType) {
			return nil, response.Errorf(http.StatusUnsupportedMediaType, "send the Secret as %s, not as %q", strings.Join(mediaTypes, " or "), sent)
		}
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(AnswerTimeout))
	body, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d bytes", tooLarge.Limit))
	case err != nil:
		return nil, apierrors.NewBadRequest("the request body is incomplete")
	}
	_ = control.SetReadDeadline(time.Time{})
	response.SetTimeout(w, AnswerTimeout)
	return decodeSecret(body)
}

// decodeSecret does not wrap the cause of an error, since that could quote the Secret.
func decodeSecret(body []byte) (*corev1.Secret, error) {
	kind := corev1.SchemeGroupVersion.WithKind("Secret")
	decoded, _, err := decoder.Decode(body, &kind, nil)
	secret, ok := decoded.(*corev1.Secret)
	if err != nil || !ok || len(body) == 0 {
		return nil, apierrors.NewBadRequest("the body is not a Secret of v1")
	}
	return secret, nil
}
