package drivermachine

import (
	"context"
	"errors"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/api/references"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
)

// credentialNamespace holds the cloud credentials that are in no cluster's namespace; their names begin with credentialPrefix.
const (
	credentialNamespace = "cattle-global-data"
	credentialPrefix    = "cc-"
)

// prepare reads what the driver needs; a Cause says what is missing. A removal needs less: the state has a copy of the credential.
func (m *machines) prepare(ctx context.Context, s *scope, removal bool) (*nodedriver.Machine, *cause.Cause, error) {
	source, fault, err := m.source(ctx, removal)
	if err != nil || fault != nil {
		return nil, fault, err
	}
	files, err := schema.ParseFiles(source.Annotations[managementv3.FileFieldsAnnotation])
	if err != nil && !removal { // a removal has the files in the state
		return nil, cause.New("NodeDriverNotReady", "NodeDriver %s: %v", m.nodeDriver, err), nil
	}
	spec, _, err := unstructured.NestedMap(s.object.Object, "spec")
	if err != nil {
		return nil, cause.New("InvalidSpec", "spec is not readable: %v", err), nil
	}
	maps.DeleteFunc(spec, func(field string, _ any) bool { return field == "common" || field == "providerID" })
	name := nodedriver.InstanceName(s.object.GetName())
	work := &nodedriver.Machine{
		ID: m.id(s), Driver: m.driver, Source: source.Spec, Name: name, Hostname: hostname(s.machine, name), Spec: spec, Files: files,
		State: s.stored.state,
	}
	credential, fault, err := m.credential(ctx, s.object)
	if err != nil || fault != nil && !removal {
		return nil, fault, err
	}
	work.Credential, s.noCredential = credential, fault
	if !removal {
		if work.Spec == nil {
			work.Spec = map[string]any{}
		}
		if err := m.addClusterFields(ctx, s.cluster, work.Spec); err != nil {
			return nil, nil, err
		}
		if work.Script, fault, err = m.bootstrapData(ctx, s.machine); err != nil || fault != nil {
			return nil, fault, err
		}
	}
	object := s.object.DeepCopy()
	work.Queued = func(waits bool) {
		m.operations.queue(object.GetUID(), waits)
		m.events <- event.GenericEvent{Object: object}
	}
	work.Save = func(ctx context.Context, state *nodedriver.State) error {
		return m.writeState(ctx, object, "", func(s *stored) error {
			s.state = state
			return nil
		})
	}
	return work, nil, nil
}

// id is whose machine the driver makes.
func (m *machines) id(s *scope) nodedriver.ID {
	id := nodedriver.ID{Kind: m.kind, Namespace: s.object.GetNamespace(), Name: s.object.GetName(), UID: s.object.GetUID()}
	if s.machine != nil {
		id.Machine = s.machine.Name
	}
	return id
}

// source returns the NodeDriver, which says where the program of the driver comes from. One that is not active only removes machines.
func (m *machines) source(ctx context.Context, removal bool) (*managementv3.NodeDriver, *cause.Cause, error) {
	driver := &managementv3.NodeDriver{}
	found, err := objects.Get(ctx, m.Client, client.ObjectKey{Name: m.nodeDriver}, driver)
	if err != nil {
		return nil, nil, err
	}
	if !found || !removal && (!driver.Spec.Active || !driver.DeletionTimestamp.IsZero()) {
		return nil, cause.New("NodeDriverInactive", "NodeDriver %s is not active; ask an administrator to activate it", m.nodeDriver), nil
	}
	_, err = m.drivers.Identify(ctx, m.driver, &driver.Spec)
	var fault *programs.FaultError
	if errors.As(err, &fault) {
		return nil, cause.New("NodeDriverNotReady", "NodeDriver %s: %v", m.nodeDriver, err), nil
	}
	return driver, nil, err
}

// hostname limits the name to what the pool asks for.
func hostname(machine *clusterv1.Machine, name string) string {
	if machine == nil {
		return name
	}
	return rkev1.LimitName(name, machine.Annotations[rkev1.HostnameLengthLimitAnnotation])
}

// credential reads the cloud credential that the machine names; nothing where it names none. Whoever named it could read it: an admission
// policy asks for that.
func (m *machines) credential(ctx context.Context, object *unstructured.Unstructured) (map[string]string, *cause.Cause, error) {
	const field = "spec.common.cloudCredentialSecretName"
	ref, _, err := unstructured.NestedString(object.Object, "spec", "common", "cloudCredentialSecretName")
	if err != nil || ref == "" {
		return nil, nil, nil //nolint:nilerr // the API server lets nothing but a text in
	}
	key := client.ObjectKey{Namespace: object.GetNamespace(), Name: ref}
	if namespace, name, ok := strings.Cut(strings.ReplaceAll(ref, "/", ":"), ":"); ok {
		key = client.ObjectKey{Namespace: namespace, Name: name}
	}
	if key.Namespace != object.GetNamespace() && (key.Namespace != credentialNamespace || !strings.HasPrefix(key.Name, credentialPrefix)) {
		return nil, cause.New("CredentialRefused", "%s is %q: name a Secret of this namespace, or one of %s whose name begins with %s",
			field, ref, credentialNamespace, credentialPrefix), nil
	}
	secret := &corev1.Secret{}
	found, err := objects.Get(ctx, m.Client, key, secret)
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, cause.New("CredentialNotFound", "%s: Secret %s does not exist; create it or correct the name", field, key), nil
	}
	if references.Forbidden(secret) != "" || !references.MachineCredential.Takes(string(secret.Type)) {
		return nil, cause.New("CredentialRefused", "%s: Secret %s has the type %s: a cloud credential is %s", field, key, secret.Type,
			references.MachineCredential.TypeNames()), nil
	}
	credential := nodedriver.Credential(m.driver, secret.Data)
	if len(credential) == 0 {
		return nil, cause.New("CredentialOfAnotherDriver", "%s: Secret %s has no key that begins with %scredentialConfig-", field, key, m.driver),
			nil
	}
	return credential, nil, nil
}

// bootstrapData reads the bootstrap data of a Machine. Its name alone proves nothing: whoever may write Machines must not read other
// Secrets by it.
func (m *machines) bootstrapData(ctx context.Context, machine *clusterv1.Machine) ([]byte, *cause.Cause, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: machine.Namespace, Name: *machine.Spec.Bootstrap.DataSecretName}
	found, err := objects.Get(ctx, m.Client, key, secret)
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, cause.New("WaitingForBootstrapData", "Waiting for Secret %s with the bootstrap data", key.Name), nil
	}
	if secret.Type != rkev1.BootstrapSecretType || secret.Labels[clusterv1.ClusterNameLabel] != machine.Spec.ClusterName {
		return nil, cause.New("BootstrapDataRefused", "Secret %s has no bootstrap data of Cluster %s; leave spec.bootstrap of the Machine to "+
			"its RKEBootstrap", key.Name, machine.Spec.ClusterName), nil
	}
	return secret.Data["value"], nil, nil
}
