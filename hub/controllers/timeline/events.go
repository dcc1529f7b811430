package timeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	hubapierrors "github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/message"
)

const (
	// component is the reporting component of Events.
	component = "drover-hub"
	// maxEvents bounds the transitions of one reconcile. The others follow in the next.
	maxEvents = 100
)

// createEvents creates the Events of transitions, and returns of how many. The name of an Event is derived from the transition, so that a
// hub that was killed before it recorded the transition creates none twice.
func (r *Reconciler) createEvents(ctx context.Context, s *scope, m *clusterState, transitions []transition, now time.Time) (int, error) {
	for i, t := range transitions {
		if i == maxEvents {
			return i, nil
		}
		text := s.publicMessage(t.reason, t.condition.Message)
		if step := stepOf(t.object, t.condition); step != "" {
			text = "Step " + step + ": " + text
		}
		events := []*corev1.Event{newEvent(t, t.object, text, now)}
		if cluster := s.clusterObject(); t.object.GetUID() != cluster.GetUID() && s.propagates(t) {
			about := kindOf(t.object) + " " + t.object.GetName()
			if text != "" {
				about += ": " + text
			}
			events = append(events, newEvent(t, cluster, about, now))
		}
		for _, event := range events {
			if err := r.writeEvent(ctx, event, t.repeatable); err != nil {
				m.attempted = &t.change
				return i, err
			}
		}
		m.seen[t.key], m.attempted = t.state, nil
	}
	m.recovered = true
	return len(transitions), nil
}

// propagates returns whether the Cluster gets the Event too. A Cluster that was written for Cluster API does not mirror the conditions of
// its control plane, so it gets all Events of those.
func (s *scope) propagates(t transition) bool {
	_, controlPlane := t.object.(*rkev1.RKEControlPlane)
	return t.rule.propagated.of(t.condition.Status) || controlPlane && s.provisioning == nil
}

func newEvent(t transition, object conditioned, text string, now time.Time) *corev1.Event {
	sum := sha256.Sum256(fmt.Append(nil, object.GetUID(), t.key, t.state, t.condition.LastTransitionTime.Unix()))
	// The name of the object may have 253 characters already, the limit for names.
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
	if t.condition.Status == metav1.ConditionFalse && t.rule.warning && !reasons.Get(t.condition.Reason).Benign {
		event.Type = corev1.EventTypeWarning
	}
	if t.at.IsZero() {
		event.FirstTimestamp, event.LastTimestamp = metav1.NewTime(now), metav1.NewTime(now)
	}
	return event
}

// writeEvent creates an Event. If it exists, its count grows where that is the Event of an earlier transition. Otherwise it is the same
// one, created before a restart, or by a request that seemed to fail.
func (r *Reconciler) writeEvent(ctx context.Context, event *corev1.Event, repeatable bool) error {
	err := r.Client.Create(ctx, event, fieldOwner)
	if apierrors.IsAlreadyExists(err) && repeatable {
		err = r.repeatEvent(ctx, event)
	}
	if apierrors.IsAlreadyExists(err) || hubapierrors.IsEnding(err) || hubapierrors.IsGone(err) {
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
