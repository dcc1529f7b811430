//go:build e2e

package scenarios

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// presented are the certificates that the control plane of a host presents, by port.
func presented(ctx context.Context, host *hosts.Host) (map[int]*x509.Certificate, error) {
	out := map[int]*x509.Certificate{}
	for _, port := range []int{6443, 10257, 10259} {
		conn, err := host.Dial(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return nil, err
		}
		secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		err = secured.HandshakeContext(ctx)
		if err == nil {
			out[port] = secured.ConnectionState().PeerCertificates[0]
		}
		_ = conn.Close()
		if err != nil {
			return nil, fmt.Errorf("port %d: %w", port, err)
		}
	}
	return out, nil
}

// rotateCertificates asks for new certificates by the generation in the Cluster. API server, controller manager and scheduler present others
// afterwards, and the hub knows when the first of them ends.
func rotateCertificates(t *testing.T, host *hosts.Host, key client.ObjectKey) {
	ctx := t.Context()
	before, err := presented(ctx, host)
	suite.Must(t, err)
	askForRotation(t, key, 1)
	awaitRotation(t, key, 1)
	first := time.Time{}
	for _, certificate := range presentOthers(t, host, before) {
		if first.IsZero() || certificate.NotAfter.Before(first) {
			first = certificate.NotAfter
		}
	}
	suite.Must(t, shared.WaitFor(ctx, "the hub knows when the first certificate ends", time.Minute, func(ctx context.Context) (bool, string) {
		controlPlane := &rkev1.RKEControlPlane{}
		if err := shared.Hub.Get(ctx, key, controlPlane); err != nil {
			return false, err.Error()
		}
		machines := &clusterv1.MachineList{}
		if err := shared.Hub.List(ctx, machines, client.InNamespace(key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}); err != nil {
			return false, err.Error()
		}
		for _, m := range machines.Items {
			// The certificate of the probe's client may end a moment before.
			if end := m.Status.CertificatesExpiryDate.Time; end.After(first) || first.Sub(end) > time.Hour {
				return false, fmt.Sprintf("Machine %s says %s", m.Name, end)
			}
		}
		condition := conditions.Get(controlPlane, rkev1.CertificatesValidCondition)
		return conditions.IsTrue(controlPlane, rkev1.CertificatesValidCondition) && controlPlane.Status.CertificateRotationGeneration == 1,
			fmt.Sprintf("generation %d, %+v", controlPlane.Status.CertificateRotationGeneration, condition)
	}))
	suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
}

// rotateCertificatesInPowerCut cuts the power of the host between the stop of its distribution and the start. It comes back with other
// certificates.
func rotateCertificatesInPowerCut(t *testing.T, host *hosts.Host, key client.ObjectKey) {
	ctx := t.Context()
	before, err := presented(ctx, host)
	suite.Must(t, err)
	askForRotation(t, key, 2)
	gone := host.Path(distributionOf(t, key).DataDir() + "/server/tls/client-scheduler.crt")
	// They may be missing for less than a second.
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(gone); err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the certificates were not moved away within 2 minutes")
		}
	}
	suite.Must(t, host.Kill())
	suite.Must(t, host.Boot(ctx))
	awaitRotation(t, key, 2)
	presentOthers(t, host, before)
	suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
}

func askForRotation(t *testing.T, key client.ObjectKey, generation int64) {
	t.Helper()
	cluster := &provisioningv1.Cluster{}
	suite.Must(t, shared.Hub.Get(t.Context(), key, cluster))
	base := cluster.DeepCopy()
	cluster.Spec.RKEConfig.RotateCertificates = &rkev1.RotateCertificates{Generation: generation}
	suite.Must(t, shared.Hub.Patch(t.Context(), cluster, client.MergeFrom(base)))
}

func awaitRotation(t *testing.T, key client.ObjectKey, generation int64) {
	t.Helper()
	name := fmt.Sprintf("%s-certificates-%d", key.Name, generation)
	suite.Must(t, shared.WaitFor(t.Context(), "the certificates are replaced", 5*time.Minute, func(ctx context.Context) (bool, string) {
		op := &operationv1.CertificateRotation{}
		if err := shared.Hub.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: name}, op); err != nil {
			return false, err.Error()
		}
		if op.Status.Phase.Ended() && op.Status.Phase != operationv1.PhaseSucceeded {
			t.Fatalf("it has ended: %+v", op.Status)
		}
		return op.Status.Phase == operationv1.PhaseSucceeded, string(op.Status.Phase)
	}))
}

// presentOthers fails where a port presents the certificate of before, and returns those that they present.
func presentOthers(t *testing.T, host *hosts.Host, before map[int]*x509.Certificate) map[int]*x509.Certificate {
	t.Helper()
	after, err := presented(t.Context(), host)
	suite.Must(t, err)
	serials := map[string]bool{}
	for port, certificate := range after {
		t.Logf("port %d: serial %x, until %s; before %x", port, certificate.SerialNumber, certificate.NotAfter, before[port].SerialNumber)
		if certificate.SerialNumber.Cmp(before[port].SerialNumber) == 0 {
			t.Errorf("port %d presents the same certificate as before", port)
		}
		serials[certificate.SerialNumber.String()] = true
	}
	if len(serials) != len(after) {
		t.Errorf("%d ports present %d certificates", len(after), len(serials))
	}
	return after
}
