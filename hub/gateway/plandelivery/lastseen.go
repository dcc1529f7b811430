package plandelivery

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// seenInterval is how often a request of an agent is recorded at most. Agents whose report has an age that matters open their watch again
// after 5 to 10 minutes.
const seenInterval = 2 * time.Minute

// expiryMargin is how long before the end of a certificate counts as soon agents are recorded that report it: when it does, the hub
// replaces it at once, or within a day, if the agent was seen lately.
const expiryMargin = 24 * time.Hour

// recordSeen records in the annotation rkev1.AgentLastSeenAnnotation of the plan Secret that the machine's agent is alive. Only
// the reports of servers, and of certificates that end soon, have an age that matters, so that all others cost no write. After a failure
// the next request records it.
func (h *Handler) recordSeen(ctx context.Context, m *Machine) {
	secret, _ := h.Secrets.Plans.Get(m.Account)
	if secret == nil || !seenIsDue(secret, time.Now()) {
		return
	}
	err := h.writeSeen(ctx, secret, time.Now())
	if apierrors.IsConflict(err) { // it was written in the meantime, and the agent may not ask again for ten minutes
		err = h.fetchPlan(ctx, m)
		if secret, _ = h.Secrets.Plans.Get(m.Account); err == nil && secret != nil {
			err = h.writeSeen(ctx, secret, time.Now())
		}
	}
	if err != nil {
		h.Logger.V(1).Info("Recording that an agent was seen failed", "Secret", m.Account.String(), "error", err.Error())
	}
}

// seenIsDue reports whether the last record is old, or from the future: the clock was set back.
func seenIsDue(secret *corev1.Secret, now time.Time) bool {
	if !ageMatters(secret, now) {
		return false
	}
	last, err := time.Parse(time.RFC3339, secret.Annotations[rkev1.AgentLastSeenAnnotation])
	return err != nil || now.Sub(last) >= seenInterval || last.After(now)
}

func (h *Handler) writeSeen(ctx context.Context, current *corev1.Secret, now time.Time) error {
	written, err := h.writePlan(ctx, current, nil, map[string]*string{}, now)
	if err != nil {
		return err
	}
	return h.Secrets.Plans.Observe(written)
}

// ofServer reports whether a plan Secret is that of a machine with etcd or a control plane.
func ofServer(secret *corev1.Secret) bool {
	return secret.Labels[rkev1.EtcdRoleLabel] == "true" || secret.Labels[rkev1.ControlPlaneRoleLabel] == "true"
}

// ageMatters reports whether the age of the machine's reports matters.
func ageMatters(secret *corev1.Secret, now time.Time) bool {
	return ofServer(secret) || reportsExpiry(secret.Data[plans.KeyProbeStatuses], now)
}

// reportsExpiry reports whether an agent has reported a certificate in a file that ends soon.
func reportsExpiry(raw []byte, now time.Time) bool {
	var statuses map[string]plans.ProbeStatus
	if !bytes.Contains(raw, []byte(plans.CertificateName(""))) || json.Unmarshal(raw, &statuses) != nil {
		return false
	}
	for _, status := range statuses {
		if end := status.CertificateNotAfter; !end.IsZero() && end.Sub(now) <= rkev1.CertificatesExpireSoon+expiryMargin {
			return true
		}
	}
	return false
}

// mustBeSeen reports whether the age of the reports of a machine matters, by what this replica has read.
func (h *Handler) mustBeSeen(m *Machine) bool {
	secret, _ := h.Secrets.Plans.Get(m.Account)
	return secret == nil || ageMatters(secret, time.Now())
}

// seenAnnotation is the annotation that a write of a plan Secret adds, nil where the age of reports does not matter.
func seenAnnotation(secret *corev1.Secret, now time.Time) map[string]string {
	if !ageMatters(secret, now) {
		return nil
	}
	return map[string]string{rkev1.AgentLastSeenAnnotation: now.UTC().Format(time.RFC3339)}
}
