package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// seenEvery is how often a request of an agent is recorded. Agents open their watch again after 5 to 10 minutes.
const seenEvery = 2 * time.Minute

// recordSeen records in the plan Secret that the machine's agent is there. hub/rollout needs to know that of members of etcd, so all others
// cost no write. A record that fails is made with the next request.
func (s *Server) recordSeen(ctx context.Context, m *machine) {
	secret, _ := s.plans.get(m.plan)
	if secret == nil || !seenIsDue(secret, time.Now()) {
		return
	}
	if err := s.writeSeen(ctx, secret, time.Now()); err != nil {
		s.log.V(1).Info("Could not record that an agent was seen", "Secret", m.plan.String(), "error", err.Error())
	}
}

// seenIsDue tells whether the last record is old. One from the future is, too: the clock was set back.
func seenIsDue(secret *corev1.Secret, now time.Time) bool {
	if secret.Labels[rkev1.EtcdRoleLabel] != "true" {
		return false
	}
	last, err := time.Parse(time.RFC3339, secret.Annotations[rkev1.AgentLastSeenAnnotation])
	return err != nil || now.Sub(last) >= seenEvery || last.After(now)
}

func (s *Server) writeSeen(ctx context.Context, current *corev1.Secret, now time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": current.UID, "annotations": seenAnnotation(current, now)}})
	if err != nil {
		return fmt.Errorf("encoding an annotation: %w", err)
	}
	written := &corev1.Secret{}
	written.Namespace, written.Name = current.Namespace, current.Name
	if err := s.opts.Client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		return err
	}
	return s.plans.observe(written)
}

// seenAnnotation is what a write of a plan Secret records; nothing where nobody needs it.
func seenAnnotation(secret *corev1.Secret, now time.Time) map[string]string {
	if secret.Labels[rkev1.EtcdRoleLabel] != "true" {
		return nil
	}
	return map[string]string{rkev1.AgentLastSeenAnnotation: now.UTC().Format(time.RFC3339)}
}
