package rkecontrolplane

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/certificates"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/plans"
)

// renewalTTL is how long a CertificateRotation that no user has asked for is kept, in seconds: until the certificate has ended that
// it was created for, so that it is known whether it has helped.
const renewalTTL = int64((certificates.WarnBefore + 30*24*time.Hour) / time.Second)

// watchCertificates passes on when the certificates of the machines end, and has those replaced that end soon.
func (r *Reconciler) watchCertificates(ctx context.Context, s *scope) error {
	var all []certificates.Certificate
	var errs []error
	for _, m := range s.machines {
		if m.state.Deleting {
			continue
		}
		var rotated []string
		if m.inputs.ControlPlane {
			rotated = render.RotatedProbes(s.inputs, m.inputs)
		}
		reported, complete := certificates.Reported(m.machine.Name, m.report, rotated, m.watchedCertificates(s), m.lastSeen())
		if complete {
			first, _ := certificates.Earliest(reported)
			errs = append(errs, r.setExpiry(ctx, m, first.End))
			all = append(all, reported...)
			continue
		}
		// Each delivery removes what was reported before.
		if end := m.certificatesEnd(); !end.IsZero() {
			all = append(all, certificates.Certificate{Machine: m.machine.Name, End: end})
		}
	}
	all = append(all, s.endingAuthorities(r.Now())...)
	if condition, known, again := certificates.Condition(r.Now(), all, s.rotations); known {
		s.certificates = &condition
		s.requeue(again)
	}
	return kerrors.NewAggregate(append(errs, r.renewCertificates(ctx, s, all)))
}

// endingAuthorities are the cluster's certificate authorities that end soon. Those that users have brought may last less than ten years.
func (s *scope) endingAuthorities(now time.Time) (ending []certificates.Certificate) {
	for _, a := range []struct {
		*authority
		purpose secret.Purpose
	}{{s.serverCA, secret.ClusterCA}, {s.clientCA, clientCAPurpose}} {
		if a.authority == nil || a.pair.Cert.NotAfter.Sub(now) > certificates.WarnBefore {
			continue
		}
		name := "the certificate authority in Secret " + s.secretName(a.purpose)
		ending = append(ending, certificates.Certificate{Name: name, End: a.pair.Cert.NotAfter})
	}
	return ending
}

// watchedCertificates are the files on a machine whose certificates count; none while its agent reports none.
func (m *machine) watchedCertificates(s *scope) map[string]string {
	for name := range m.report.Status.ProbeStatuses {
		if _, is := plans.CertificatePath(name); is {
			return render.WatchedCertificates(s.inputs, m.inputs)
		}
	}
	return nil
}

// lastSeen is when the machine's agent was last seen; zero if that is not recorded. For a worker it is recorded only while a certificate
// ends soon, so that it tells nothing about the machine otherwise, and its state has none.
func (m *machine) lastSeen() time.Time {
	if m.state.Server() || m.secret == nil {
		return m.state.LastSeen
	}
	seen, _ := time.Parse(time.RFC3339, m.secret.Annotations[rkev1.AgentLastSeenAnnotation])
	return seen
}

// certificatesEnd is when the first of the machine's certificates ends, as its agent has last reported; zero if that is not known.
func (m *machine) certificatesEnd() time.Time {
	end, _ := time.Parse(time.RFC3339, m.bootstrap.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation])
	return end
}

// setExpiry writes the end of a machine's certificates where Cluster API looks for status.certificatesExpiryDate of the Machine.
func (r *Reconciler) setExpiry(ctx context.Context, m *machine, end time.Time) error {
	value := certificates.FormatTime(end)
	if m.bootstrap.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation] == value {
		return nil
	}
	changed := m.bootstrap.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, clusterv1.MachineCertificatesExpiryDateAnnotation, value)
	err := r.Client.Patch(ctx, changed, client.MergeFrom(m.bootstrap), fieldOwner)
	switch {
	case err != nil && apierrors.IsGone(err):
		return nil
	case err != nil:
		return fmt.Errorf("writing the end of the certificates to RKEBootstrap %s: %w", m.bootstrap.Name, err)
	}
	m.bootstrap = changed
	return nil
}

// renewCertificates creates a CertificateRotation when a certificate ends soon, unless the cluster does not want that, or is doing
// something else. An operation that was paused before it began lets the rotation go first.
func (r *Reconciler) renewCertificates(ctx context.Context, s *scope, all []certificates.Certificate) error {
	busy := s.operation != nil && operation.Precedence(s.operation) >= 0
	if busy || !s.bootstrapped() || !renewsCertificates(s.controlPlane) {
		return nil
	}
	first, due, again := certificates.Due(r.Now(), all, s.rotations, certificates.Delay(s.cluster.UID))
	s.requeue(again)
	if !due {
		return nil
	}
	op := &operationv1.CertificateRotation{}
	op.CommonSpec().TTL = renewalTTL
	op.SetName(rkev1.SafeConcat(s.cluster.Name, "renewal", r.Now().UTC().Format("20060102")))
	op.SetAnnotations(map[string]string{operationv1.CertificatesExpiryAnnotation: certificates.FormatTime(first.End)})
	ctrl.LoggerFrom(ctx).Info("Replacing the certificates of the cluster, since one ends soon", "Machine", first.Machine,
		"certificate", first.Name, "end", first.End, "CertificateRotation", op.GetName())
	return r.createOperation(ctx, s, op)
}

// renewsCertificates reports whether the hub replaces certificates that end soon: an annotation with any value but "true" tells
// it not to.
func renewsCertificates(controlPlane *rkev1.RKEControlPlane) bool {
	value, set := controlPlane.Annotations[rkev1.RenewCertificatesAnnotation]
	if !set {
		return true
	}
	renews, err := strconv.ParseBool(value)
	return err == nil && renews
}
