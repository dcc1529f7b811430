//go:build e2e && full

package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestCertificatesEnd makes a cluster whose certificates end in a week: the hub warns, and replaces them when it may.
func TestCertificatesEnd(t *testing.T) { certificatesEnd(t, lab.K3s, "ending") }

// TestCertificatesEndRKE2 does so with a cluster of RKE2.
func TestCertificatesEndRKE2(t *testing.T) {
	suite.Must(t, shared.Release(t.Context(), lab.RKE2.Version))
	certificatesEnd(t, lab.RKE2, "endingr")
}

func certificatesEnd(t *testing.T, d lab.Distribution, name string) {
	ctx := t.Context()
	c := faultyCluster{key: client.ObjectKey{Namespace: "fleet-default", Name: name}, d: d, host: shared.NewHost(t, name)}
	shared.MakeNamespace(t, c.key.Namespace)
	environment := "/etc/default/" + d.ServerUnit
	mayRenew := func(t *testing.T, value string) {
		changeCluster(t, c.key, func(cluster *provisioningv1.Cluster) {
			if cluster.Annotations == nil {
				cluster.Annotations = map[string]string{}
			}
			cluster.Annotations[rkev1.RenewCertificatesAnnotation] = value
		})
	}
	valid := func(t *testing.T, what, status, reason string) {
		t.Helper()
		suite.Must(t, shared.WaitFor(ctx, what, 10*time.Minute, func(ctx context.Context) (bool, string) {
			plane := &rkev1.RKEControlPlane{}
			if err := shared.Hub.Get(ctx, c.key, plane); err != nil {
				return false, err.Error()
			}
			condition := conditions.Get(plane, rkev1.CertificatesValidCondition)
			if condition == nil {
				return false, "it has no condition"
			}
			return string(condition.Status) == status && (reason == "" || condition.Reason == reason),
				fmt.Sprintf("%s %s", condition.Reason, condition.Message)
		}))
	}
	suite.Step(t, "a machine whose certificates are made for a week makes a cluster", func(t *testing.T) {
		c.run(t, "mkdir -p /etc/default && echo CATTLE_NEW_SIGNED_CERT_EXPIRATION_DAYS=7 >"+environment)
		suite.Must(t, shared.ApplyClusterVersion(ctx, shared.Hub, c.key, d.Version))
		mayRenew(t, "false")
		command, _, err := shared.TokenCommand(ctx, shared.Hub, c.key, lab.AllRoles...)
		suite.Must(t, err)
		suite.Must(t, shared.Register(ctx, c.host, command))
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, c.key, 10*time.Minute))
	})
	suite.Step(t, "the hub warns, and replaces none while it may not", func(t *testing.T) {
		valid(t, "the hub says that they end soon", "False", "CertificatesExpireSoon")
		if n := len(renewals(t, c.key)); n != 0 {
			t.Errorf("there are %d CertificateRotations", n)
		}
	})
	suite.Step(t, "once it may, the hub replaces them unasked", func(t *testing.T) {
		before := waitPresented(t, c.host)
		c.run(t, "rm "+environment)
		mayRenew(t, "true")
		suite.Must(t, shared.WaitFor(ctx, "the hub has made a CertificateRotation", 2*time.Minute, func(context.Context) (bool, string) {
			return len(renewals(t, c.key)) > 0, "there is none"
		}))
		op := renewals(t, c.key)[0]
		if !strings.HasPrefix(op.Name, c.key.Name+"-renewal-") {
			t.Errorf("its name is %s", op.Name)
		}
		shared.WaitOperation(t, &op, nil)
		valid(t, "the certificates are good for long", "True", "")
		for port, certificate := range presentOthers(t, c.host, before) {
			if left := time.Until(certificate.NotAfter); left < 300*24*time.Hour {
				t.Errorf("the certificate of port %d is good for %s", port, left)
			}
		}
		if n := len(renewals(t, c.key)); n != 1 {
			t.Errorf("there are %d CertificateRotations", n)
		}
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, c.key, 5*time.Minute))
	})
	suite.Step(t, "the Cluster is deleted", func(t *testing.T) { shared.DeleteCluster(t, c.key) })
}

// renewals are the rotations of a cluster's certificates.
func renewals(t *testing.T, key client.ObjectKey) (out []operationv1.CertificateRotation) {
	t.Helper()
	list := &operationv1.CertificateRotationList{}
	suite.Must(t, shared.Hub.List(t.Context(), list, client.InNamespace(key.Namespace)))
	for _, op := range list.Items {
		if op.Spec.ClusterRef.Name == key.Name {
			out = append(out, op)
		}
	}
	return out
}
