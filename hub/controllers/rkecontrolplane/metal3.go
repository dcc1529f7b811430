package rkecontrolplane

import (
	"context"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/util/capicontract"
	"github.com/drover-dev/drover/hub/util/objects"
)

var metal3Machine = schema.GroupKind{Group: capicontract.InfrastructureGroup, Kind: "Metal3Machine"}

// metal3Host is the annotation of a Metal3Machine with namespace and name of its BareMetalHost.
const metal3Host = "metal3.io/BareMetalHost"

// findMetal3 finds out the provider IDs and addresses of Metal3Machines that are not provisioned yet and whose machines have registered.
// The provider of Metal3 counts a machine as provisioned, and tells its provider ID, only when there is a Node with that ID: if the first
// plan of the machine waited for it, there would never be one. The ID is made of names that are known before.
func (r *Reconciler) findMetal3(ctx context.Context, s *scope) error {
	for _, m := range s.machines {
		ref := m.machine.Spec.InfrastructureRef
		if m.state.Unusable == "" || m.state.Deleting || ref.APIGroup != metal3Machine.Group || ref.Kind != metal3Machine.Kind ||
			m.bootstrap.Annotations[rkev1.MachineSecretHashAnnotation] == "" {
			continue
		}
		infra, err := r.readMetal3(ctx, client.ObjectKey{Namespace: m.machine.Namespace, Name: ref.Name})
		if err != nil {
			return err
		}
		if infra == nil || !metav1.IsControlledBy(infra, m.machine) {
			continue
		}
		if s.metal3 == nil {
			s.metal3 = map[string]*unstructured.Unstructured{}
		}
		s.metal3[string(m.machine.UID)] = infra
		m.useMetal3(s)
	}
	return nil
}

// readMetal3 returns nil for one that does not exist.
func (r *Reconciler) readMetal3(ctx context.Context, key client.ObjectKey) (*unstructured.Unstructured, error) {
	version, err := capicontract.APIVersion(ctx, r.Live, metal3Machine)
	var notInstalled *capicontract.NotInstalledError
	var notSupported *capicontract.NotSupportedError
	if errors.As(err, &notInstalled) || errors.As(err, &notSupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	infra := &unstructured.Unstructured{}
	infra.SetAPIVersion(version)
	infra.SetKind(metal3Machine.Kind)
	found, err := objects.Get(ctx, r.Live, key, infra)
	if err != nil || !found {
		return nil, err
	}
	return infra, nil
}

// useMetal3 gives the machine what findMetal3 has found, and lets it get its first plan.
func (m *machine) useMetal3(s *scope) {
	infra := s.metal3[string(m.machine.UID)]
	if infra == nil || m.state.Unusable == "" {
		return
	}
	_, host, _ := strings.Cut(infra.GetAnnotations()[metal3Host], "/")
	if host == "" {
		return
	}
	m.inputs.ProviderID = "metal3://" + infra.GetNamespace() + "/" + host + "/" + infra.GetName()
	m.state.Unusable = ""
	var status struct {
		Addresses []clusterv1.MachineAddress `json:"addresses"`
	}
	content, _, err := unstructured.NestedMap(infra.Object, "status")
	if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status) != nil {
		return
	}
	reporting := m.machine.DeepCopy()
	reporting.Status.Addresses = status.Addresses
	// They are for others to reach it. Its own are in no plan yet: they are those of all its network cards.
	m.reported = machinestate.ReportedAddresses(reporting, m.bootstrap, s.endpoint().Host)
}
