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

// rotateCertificates asks for new certificates by the generation in the Cluster. API server, controller manager and scheduler present
// others afterwards, and the hub knows when the first of them ends.
func rotateCertificates(t *testing.T, host *hosts.Host, key client.ObjectKey) {
	ctx := t.Context()
	before := waitPresented(t, host)
	askForRotation(t, key, 1)
	awaitRotation(t, key, 1)
	first := time.Time{}
	for _, certificate := range presentOthers(t, host, before) {
		if first.IsZero() || certificate.NotAfter.Before(first) {
			first = certificate.NotAfter
		}
	}
	suite.Must(t, shared.WaitFor(ctx, "the hub knows when the first certificate ends", 2*time.Minute,
		func(ctx context.Context) (bool, string) {
			controlPlane := &rkev1.RKEControlPlane{}
			if err := shared.Hub.Get(ctx, key, controlPlane); err != nil {
				return false, err.Error()
			}
			machines := &clusterv1.MachineList{}
			if err := shared.Hub.List(ctx, machines, client.InNamespace(key.Namespace),
				client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}); err != nil {
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
// certificates. Where nobody has looked in that moment, it asks for others once more.
func rotateCertificatesInPowerCut(t *testing.T, host *hosts.Host, key client.ObjectKey) {
	ctx := t.Context()
	gone := host.Path(distributionOf(t, key).DataDir() + "/server/tls/client-scheduler.crt")
	for generation := int64(2); generation <= 5; generation++ {
		before := waitPresented(t, host)
		askForRotation(t, key, generation)
		seen := seenMissing(t, gone, key, generation)
		if seen {
			suite.Must(t, host.Kill())
			suite.Must(t, host.Boot(ctx))
		}
		awaitRotation(t, key, generation)
		presentOthers(t, host, before)
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
		if seen {
			return
		}
		t.Log("the moment in which the certificates are missing was not seen")
	}
	t.Fatal("the certificates were not moved away")
}

// seenMissing waits until a file is missing, which may last less than a second, and reports false if the rotation ends before that was
// seen.
func seenMissing(t *testing.T, file string, key client.ObjectKey, generation int64) bool {
	t.Helper()
	end := time.Now().Add(5 * time.Minute)
	asked := time.Now()
	for ; ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(file); err != nil {
			return true
		}
		if time.Since(asked) < 2*time.Second {
			continue
		}
		asked = time.Now()
		op := &operationv1.CertificateRotation{}
		if err := shared.Hub.Get(t.Context(), rotationKey(key, generation), op); err == nil && op.Status.Phase.Ended() {
			return false
		}
		if asked.After(end) {
			t.Fatal("the certificates were not moved away within 5 minutes")
		}
	}
}

// waitPresented waits until each component of the control plane presents a certificate.
func waitPresented(t *testing.T, host *hosts.Host) (found map[int]*x509.Certificate) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), "the control plane presents certificates", 2*time.Minute,
		func(ctx context.Context) (bool, string) {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			var err error
			found, err = presented(ctx, host)
			return err == nil, fmt.Sprint(err)
		}))
	return found
}

func rotationKey(key client.ObjectKey, generation int64) client.ObjectKey {
	return client.ObjectKey{Namespace: key.Namespace, Name: fmt.Sprintf("%s-certificates-%d", key.Name, generation)}
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
	suite.Must(t, shared.WaitFor(t.Context(), "the certificates are replaced", 5*time.Minute, func(ctx context.Context) (bool, string) {
		op := &operationv1.CertificateRotation{}
		if err := shared.Hub.Get(ctx, rotationKey(key, generation), op); err != nil {
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
	after := waitPresented(t, host)
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
