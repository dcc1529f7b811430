package timeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/message"
)

const (
	// component is who reports.
	component = "drover-hub"
	// maxEvents is how many transitions are told in one pass. The rest follows in the next.
	maxEvents = 100
)

// tell makes the Events of transitions. Their names depend on nothing but what is told, so that a hub that was killed before it could
// remember what it told tells nothing twice. It returns how many transitions were told.
func (r *Reconciler) tell(ctx context.Context, s *scope, m *memory, transitions []transition, now time.Time) (int, error) {
	for i, t := range transitions {
		if i == maxEvents {
			return i, nil
		}
		text := s.message(t.reason, t.condition.Message)
		events := []*corev1.Event{newEvent(t, t.object, text, now)}
		if top := s.top(); t.object.GetUID() != top.GetUID() && s.tellsUp(t) {
			about := kindOf(t.object) + " " + t.object.GetName()
			if text != "" {
				about += ": " + text
			}
			events = append(events, newEvent(t, top, about, now))
		}
		for _, event := range events {
			if err := r.writeEvent(ctx, event, t.again); err != nil {
				return i, err
			}
		}
		m.seen[t.key] = t.state
	}
	return len(transitions), nil
}

// tellsUp tells whether the Cluster shows an Event too. A Cluster of Cluster API alone does not mirror its control plane's conditions.
func (s *scope) tellsUp(t transition) bool {
	_, controlPlane := t.object.(*rkev1.RKEControlPlane)
	return t.telling.up || controlPlane && s.provisioning == nil
}

func newEvent(t transition, object conditioned, text string, now time.Time) *corev1.Event {
	sum := sha256.Sum256(fmt.Append(nil, object.GetUID(), t.key, t.state, t.condition.LastTransitionTime.Unix()))
	// A name may have 253 characters, which the name of an object may take whole.
	name := object.GetName()
	name = name[:min(len(name), 230)] + "." + hex.EncodeToString(sum[:8])
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: name},
		InvolvedObject: reference(object),
		Reason:         t.reason,
		Message:        message.Bound(text, message.MaxEvent),
		Source:         corev1.EventSource{Component: component},
		FirstTimestamp: metav1.NewTime(t.at),
		LastTimestamp:  metav1.NewTime(t.at),
		Count:          1,
		Type:           corev1.EventTypeNormal,

		ReportingController: component,
	}
	if t.condition.Status == metav1.ConditionFalse && t.telling.trouble && !slices.Contains(calm, t.condition.Reason) {
		event.Type = corev1.EventTypeWarning
	}
	if t.at.IsZero() {
		event.FirstTimestamp, event.LastTimestamp = metav1.NewTime(now), metav1.NewTime(now)
	}
	return event
}

// calm are reasons for which a condition is false although nobody has to act.
var calm = []string{"Deleting", "WaitingForControlPlane", "WaitingForInitialization", "WaitingForManagementCluster", "WaitingForNamespace"}

// writeEvent creates an Event. One that is there already has happened once more, unless it may be that very one.
func (r *Reconciler) writeEvent(ctx context.Context, event *corev1.Event, again bool) error {
	err := r.Client.Create(ctx, event, fieldOwner)
	if apierrors.IsAlreadyExists(err) && !again {
		err = r.repeatEvent(ctx, event)
	}
	if apierrors.IsAlreadyExists(err) || failure.IsEnding(err) || failure.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing Event %s: %w", event.Name, err)
	}
	return nil
}

func (r *Reconciler) repeatEvent(ctx context.Context, event *corev1.Event) error {
	found := &corev1.Event{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(event), found); err != nil {
		return err
	}
	found.Count++
	found.LastTimestamp, found.Message = event.LastTimestamp, event.Message
	return r.Client.Update(ctx, found, fieldOwner)
}
