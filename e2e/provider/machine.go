package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"

	"github.com/drover-dev/drover/e2e/hosts"
	labv1 "github.com/drover-dev/drover/e2e/provider/api/v1alpha1"
)

const (
	machineFinalizer = "infrastructure.cluster.x-k8s.io/labmachine"

	// sentinelFile is what bootstrap data writes when it has come to a good end, by the contract for bootstrap providers.
	sentinelFile = "/run/cluster-api/bootstrap-success.complete"
	// tagsFile shows a host its tags.
	tagsFile = "/etc/lab/tags"

	// How often a host is looked at, as a cloud's instances are: nobody tells when one goes off.
	bootstrapInterval = time.Second
	powerInterval     = 3 * time.Second
)

type machineReconciler struct {
	client client.Client
	// secrets reads from the API server: the provider has no right to list Secrets.
	secrets client.Reader
	lab     *hosts.Lab
	// balancer is told when a machine gets no connections any more.
	balancer *balancer
}

func (r *machineReconciler) setup(mgr ctrl.Manager) error {
	clusterToMachines, err := util.ClusterToTypedObjectsMapper(r.client, &labv1.LabMachineList{}, mgr.GetScheme())
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("labmachine").
		For(&labv1.LabMachine{}).
		Watches(&clusterv1.Machine{},
			handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(labv1.GroupVersion.WithKind("LabMachine")))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToMachines)).
		WithOptions(controllerOptions(4)).
		Complete(r)
}

// machineScope is what one pass has read.
type machineScope struct {
	labMachine *labv1.LabMachine
	// machine and cluster are nil until Cluster API has taken the LabMachine over.
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	host    observation
	// failed is what went wrong with the host.
	failed error
}

// Reconcile writes the status once at the end.
func (r *machineReconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	s := &machineScope{labMachine: &labv1.LabMachine{}}
	if err := r.client.Get(ctx, req.NamespacedName, s.labMachine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.readOwners(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if isPaused, changed, err := paused.EnsurePausedCondition(ctx, r.client, s.cluster, s.labMachine); err != nil || isPaused || changed {
		return ctrl.Result{}, err
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.client, s.labMachine, machineFinalizer); err != nil || added {
		return ctrl.Result{}, err
	}
	helper, err := patch.NewHelper(s.labMachine, r.client)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		setMachineStatus(s)
		err := helper.Patch(ctx, s.labMachine, patch.WithOwnedConditions{Conditions: machineConditions})
		if !s.labMachine.DeletionTimestamp.IsZero() {
			err = kerrors.FilterOut(err, apierrors.IsNotFound)
		}
		if err != nil {
			reterr = kerrors.NewAggregate([]error{reterr, fmt.Errorf("writing the LabMachine: %w", err)})
		}
	}()
	if !s.labMachine.DeletionTimestamp.IsZero() {
		s.failed = r.remove(s)
		return ctrl.Result{}, s.failed
	}
	if why, _ := s.waits(); why == "" && !s.provisioned() {
		if s.failed = r.make(ctx, s); s.failed != nil {
			return ctrl.Result{}, s.failed
		}
	}
	s.host = r.observe(s)
	if s.machine != nil && (!s.machine.DeletionTimestamp.IsZero() || !s.host.on) {
		if err := r.balancer.leave(ctx, s.machine.Namespace, s.machine.Spec.ClusterName); err != nil {
			return ctrl.Result{}, err
		}
	}
	return s.lookAgain(), nil
}

func (r *machineReconciler) readOwners(ctx context.Context, s *machineScope) (err error) {
	s.machine, err = util.GetOwnerMachine(ctx, r.client, s.labMachine.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the Machine that owns the LabMachine: %w", err)
	}
	if s.machine == nil || err != nil {
		s.machine = nil
		return nil
	}
	s.cluster, err = util.GetClusterByName(ctx, r.client, s.machine.Namespace, s.machine.Spec.ClusterName)
	if err != nil {
		s.cluster = nil
		return client.IgnoreNotFound(err)
	}
	return nil
}

// make makes the host and turns it on. Done again, it changes nothing.
func (r *machineReconciler) make(ctx context.Context, s *machineScope) error {
	data, err := r.bootstrapData(ctx, s.machine)
	if err != nil {
		return err
	}
	host, err := r.lab.MakeHost(ctx, hosts.HostOptions{
		Name: s.labMachine.Name, Owner: s.owner(), UserData: data, Files: map[string]string{tagsFile: tagLines(s.labMachine.Spec.Tags)},
	})
	if err != nil {
		return err
	}
	return host.TurnOn()
}

func (r *machineReconciler) bootstrapData(ctx context.Context, machine *clusterv1.Machine) ([]byte, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: machine.Namespace, Name: *machine.Spec.Bootstrap.DataSecretName}
	if err := r.secrets.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("reading the bootstrap data: %w", err)
	}
	// Secrets of bootstrap providers that know only one format have no key for it.
	if format := string(secret.Data["format"]); format != "" && format != "cloud-config" {
		return nil, fmt.Errorf("the bootstrap Secret %s has format %q: hosts of a lab understand cloud-config only", key, format)
	}
	if len(secret.Data["value"]) == 0 {
		return nil, fmt.Errorf("the bootstrap Secret %s has nothing in its key value", key)
	}
	return secret.Data["value"], nil
}

// remove removes the host, if it is this LabMachine's, and lets the LabMachine go.
func (r *machineReconciler) remove(s *machineScope) error {
	if host := r.find(s); host != nil {
		if err := host.Remove(); err != nil {
			return err
		}
	}
	controllerutil.RemoveFinalizer(s.labMachine, machineFinalizer)
	return nil
}

// find returns the LabMachine's host, or nil if the lab does not have it.
func (r *machineReconciler) find(s *machineScope) *hosts.Host {
	host, err := r.lab.Host(s.labMachine.Name)
	if err != nil || host.Owner != s.owner() {
		return nil
	}
	return host
}

func (r *machineReconciler) observe(s *machineScope) observation {
	host := r.find(s)
	if host == nil {
		return observation{}
	}
	out := observation{exists: true, on: host.Up(), address: host.IP().String(), providerID: fmt.Sprintf("lab://%s/%s", r.lab.Name, host.Name)}
	if out.on && !s.bootstrapped() {
		out.sentinel = host.HasRuntimeFile(sentinelFile)
		out.bootstrapEnded, out.bootstrapErrors = host.CloudInit()
	}
	return out
}

// owner is how the lab's ledger knows the LabMachine.
func (s *machineScope) owner() string { return string(s.labMachine.UID) }

func tagLines(tags map[string]string) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		fmt.Fprintf(&out, "%s=%s\n", name, tags[name])
	}
	return out.String()
}
