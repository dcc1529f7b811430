package nodedriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/util/capicontract"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// scope is what one reconcile has read and found.
type scope struct {
	driver *managementv3.NodeDriver
	// name of the driver.
	name string
	// download, install and removal are what a condition waits for; nil where it is met or was not looked at.
	download, install, removal *cause.Cause
	// downloaded and installed are true once the phase has succeeded in this reconcile.
	downloaded, installed bool
}

// Name is the name of the driver of a NodeDriver.
func Name(driver *managementv3.NodeDriver) string {
	if driver.Spec.DisplayName != "" {
		return strings.ToLower(driver.Spec.DisplayName)
	}
	return driver.Name
}

// reconcileNormal gets the program and installs the kinds of an active driver. Those of an inactive one stay for its machines.
func (r *Reconciler) reconcileNormal(ctx context.Context, s *scope) error {
	if fault := schema.ValidateName(s.name); fault != "" {
		s.download = cause.New("InvalidName", "spec.displayName, or else metadata.name: %s", fault)
		return nil
	}
	if !s.driver.Spec.Active {
		return nil
	}
	identity, err := r.Drivers.Identify(ctx, s.name, &s.driver.Spec)
	if err != nil {
		return s.noProgram(err)
	}
	identity += "/" + s.driver.Annotations[managementv3.FileFieldsAnnotation]
	if known, _ := r.read.Load(s.driver.UID); known == identity && r.established(ctx, s) {
		s.downloaded, s.installed = true, true
		return nil
	}
	return r.install(ctx, s, identity)
}

// noProgram says why the program cannot be had.
func (s *scope) noProgram(err error) error {
	var final *programs.FaultError
	if errors.As(err, &final) {
		s.download = cause.New("DownloadRefused", "%v", err)
		return nil
	}
	s.download = cause.New("DownloadFailed", "%v; retrying", err)
	return err
}

// install reads the flags and applies the definitions.
func (r *Reconciler) install(ctx context.Context, s *scope, identity string) error {
	flags, checksum, err := r.Drivers.Flags(ctx, s.name, &s.driver.Spec)
	var refused *programs.FaultError
	if errors.As(err, &refused) { // where the program is got when the driver is run
		return s.noProgram(err)
	}
	s.downloaded = true
	var broken *plugin.Error
	var program *nodedriver.ProgramError
	if errors.As(err, &broken) || errors.As(err, &program) {
		s.install = cause.New("DriverFailed", "Reading the create flags: %v; retrying", err)
		return fmt.Errorf("reading the create flags of driver %s: %w", s.name, err)
	}
	if err != nil {
		s.install = cause.New("SandboxFailed", "Running the driver: %v; retrying", err)
		return err
	}
	files, err := schema.ParseFiles(s.driver.Annotations[managementv3.FileFieldsAnnotation])
	if err != nil {
		s.install = cause.New("InvalidFileFields", "%v", err)
		return nil
	}
	fields, err := schema.Fields(s.name, flags, files)
	if err != nil {
		s.install = cause.New("InvalidFlags", "The driver has create flags that cannot be fields: %v", err)
		return nil
	}
	if err := files.Check(fields); err != nil {
		s.install = cause.New("InvalidFileFields", "%v", err)
		return nil
	}
	for _, crd := range schema.Definitions(s.driver.Name, s.name, fields) {
		if taken, err := r.taken(ctx, s, crd.Name); err != nil || taken {
			return err
		}
		if err := ssa.Apply(ctx, r.Client, fieldOwner, crd); err != nil {
			s.install = cause.New("DefinitionRefused", "Installing %s: %v", crd.Name, err)
			return fmt.Errorf("installing %s: %w", crd.Name, err)
		}
	}
	s.driver.Status.Checksum = checksum
	r.read.Store(s.driver.UID, identity)
	if s.installed = r.established(ctx, s); !s.installed {
		s.install = cause.New("WaitingForDefinitions", "Waiting for the API server to serve the kinds of the driver")
	}
	return nil
}

// taken reports whether a definition belongs to another NodeDriver, or to nobody of the hub. Those of Rancher are taken over.
func (r *Reconciler) taken(ctx context.Context, s *scope, name string) (bool, error) {
	crd, err := r.definition(ctx, name)
	if err != nil || crd == nil {
		return false, err
	}
	if owner := crd.Labels[schema.DriverLabel]; owner != s.driver.Name && !schema.OfRancher(crd) {
		s.install = cause.New("NameTaken", "CustomResourceDefinition %s belongs to NodeDriver %q; delete one of the two NodeDrivers of driver %s",
			name, owner, s.name)
		return true, nil
	}
	return false, nil
}

func (r *Reconciler) definition(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	found, err := objects.Get(ctx, r.Live, client.ObjectKey{Name: name}, crd)
	if err != nil || !found {
		return nil, err
	}
	return crd, nil
}

// kinds are the kinds of the driver.
func (s *scope) kinds() []runtimeschema.GroupVersionKind {
	return []runtimeschema.GroupVersionKind{schema.MachineKind(s.name), schema.TemplateKind(s.name), schema.ConfigKind(s.name)}
}

// established reports whether the driver's kinds are served. It is asked again after each change of a definition.
func (r *Reconciler) established(ctx context.Context, s *scope) bool {
	for _, kind := range s.kinds() {
		crd, err := r.definition(ctx, capicontract.DefinitionName(kind.GroupKind()))
		if err != nil || crd == nil || crd.Labels[schema.DriverLabel] != s.driver.Name {
			return false
		}
		served := false
		for _, c := range crd.Status.Conditions {
			served = served || c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		}
		if !served {
			return false
		}
	}
	return true
}

// removalInterval is after which a deletion looks again for objects: kinds of one driver are not watched for it.
const removalInterval = 10 * time.Second

// reconcileDelete deletes the kinds when no object of them is left: a definition takes all objects with it, also what users have written.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) (ctrl.Result, error) {
	for _, kind := range s.kinds() {
		crd, err := r.definition(ctx, capicontract.DefinitionName(kind.GroupKind()))
		if err != nil {
			return ctrl.Result{}, err
		}
		if crd == nil || crd.Labels[schema.DriverLabel] != s.driver.Name {
			continue
		}
		left, err := r.first(ctx, kind)
		if err != nil {
			return ctrl.Result{}, err
		}
		if left != "" {
			first := "delete the machine pools of this driver first"
			if kind.Group == schema.ConfigGroup {
				first = "delete the machine configurations of this driver first"
			}
			s.removal = cause.New("InUse", "%s %s exists; %s", kind.Kind, left, first)
			return ctrl.Result{RequeueAfter: removalInterval}, nil
		}
	}
	for _, kind := range s.kinds() {
		crd, err := r.definition(ctx, capicontract.DefinitionName(kind.GroupKind()))
		if err != nil {
			return ctrl.Result{}, err
		}
		if crd == nil || crd.Labels[schema.DriverLabel] != s.driver.Name {
			continue
		}
		if err := objects.Delete(ctx, r.Client, crd); err != nil {
			return ctrl.Result{}, err
		}
	}
	controllerutil.RemoveFinalizer(s.driver, Finalizer)
	objects.DropRancherFinalizers(s.driver)
	return ctrl.Result{}, nil
}

// first is the namespace and name of some object of a kind; empty if there is none.
func (r *Reconciler) first(ctx context.Context, kind runtimeschema.GroupVersionKind) (string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	err := r.Live.List(ctx, list, client.Limit(1))
	if apierrors.IsNotFound(err) || len(list.Items) == 0 {
		return "", client.IgnoreNotFound(err)
	}
	item := metav1.Object(&list.Items[0])
	return item.GetNamespace() + "/" + item.GetName(), err
}
