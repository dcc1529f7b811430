package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/testenv/nodedriver"
)

// driverProgram builds the driver of the tests once.
var driverProgram = sync.OnceValues(func() (string, error) {
	return nodedriver.Build(env.Dir, "")
})

// installDriver puts a program of a driver into the hub's directory. mode makes it misbehave.
func installDriver(t *testing.T, name, mode string) {
	t.Helper()
	program, err := driverProgram()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(env.Dir, testenv.NodeDrivers)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "docker-machine-driver-"+name)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := nodedriver.SetMode(path+".new", mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// newDriver creates a NodeDriver, which is deleted after the test.
func newDriver(t *testing.T, name string) *managementv3.NodeDriver {
	t.Helper()
	driver := &managementv3.NodeDriver{ObjectMeta: metav1.ObjectMeta{Name: name}}
	driver.Spec = managementv3.NodeDriverSpec{Active: true, Builtin: true}
	env.Create(t, driver)
	return driver
}

// waitDriver waits for the Ready condition of a NodeDriver to have a reason and a message.
func waitDriver(t *testing.T, driver *managementv3.NodeDriver, reason, message string) {
	t.Helper()
	testenv.Until(t, "NodeDriver "+driver.Name+" to be "+reason, func() error {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(driver), driver); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(driver.Status.Conditions, "Ready")
		if ready == nil || ready.Reason != reason || !strings.Contains(ready.Message, message) {
			return fmt.Errorf("conditions %+v", driver.Status.Conditions)
		}
		return nil
	})
}

func driverObject(group, kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range fields {
		o.Object[field] = value
	}
	o.SetAPIVersion(group + "/v1")
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// A driver's flags become fields of its kinds, with types and defaults, and pools of such machines live and die.
func TestNodeDriver(t *testing.T) {
	t.Parallel()
	installDriver(t, "lab", "")
	namespace := env.Namespace(t)
	program := managementv3.NodeDriver{ObjectMeta: metav1.ObjectMeta{Name: "kinds"}}
	program.Spec = managementv3.NodeDriverSpec{Builtin: true, Active: true, DisplayName: "Kinds"}
	if err := env.Client.Create(t.Context(), &program); err != nil {
		t.Fatal(err)
	}
	waitDriver(t, &program, "DownloadRefused", "put one there")
	if err := env.Client.Delete(t.Context(), &program); err != nil {
		t.Fatal(err)
	}

	driver := newDriver(t, "lab")
	waitDriver(t, driver, "Installed", "")
	const group = "rke-machine-config.cattle.io"
	config := driverObject(group, "LabConfig", namespace, "a", map[string]any{"size": "4", "tags": []any{"x"}, "privateNetworking": true})
	if err := env.Client.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if config.Object["image"] != "debian" || config.Object["sshUser"] != "root" {
		t.Errorf("defaults are missing: %v", config.Object)
	}
	for field, value := range map[string]any{"size": "four", "tags": "x", "privateNetworking": "yes"} {
		err := env.Client.Create(t.Context(), driverObject(group, "LabConfig", namespace, "b", map[string]any{field: value}))
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s %v: %v", field, value, err)
		}
	}

	other := newDriver(t, "other-lab-name")
	waitDriver(t, other, "InvalidName", "is no name of a driver")
	taken := &managementv3.NodeDriver{ObjectMeta: metav1.ObjectMeta{Name: "second"}}
	taken.Spec = managementv3.NodeDriverSpec{Active: true, Builtin: true, DisplayName: "Lab"}
	env.Create(t, taken)
	waitDriver(t, taken, "NameTaken", `belongs to NodeDriver "lab"`)
	testDriverPools(t)
	testFileFields(t, driver, namespace)

	if err := errors.Join(env.Client.Delete(t.Context(), taken), env.Client.Delete(t.Context(), driver)); err != nil {
		t.Fatal(err)
	}
	// Configurations that users have written are not deleted with their kind.
	waitDriver(t, driver, "InUse", "delete the machine configurations of this driver first")
	env.Delete(t, config)
	env.Gone(t, driver)
	testenv.Until(t, "the kinds to be deleted with the driver", func() error {
		var crds apiextensionsv1.CustomResourceDefinitionList
		err := env.Client.List(t.Context(), &crds, client.MatchingLabels{"management.cattle.io/node-driver": "lab"})
		if err != nil || len(crds.Items) > 0 {
			return fmt.Errorf("%d definitions, %w", len(crds.Items), err)
		}
		return nil
	})
}

// testFileFields: the annotation of a NodeDriver says which fields take the content of a file.
func testFileFields(t *testing.T, driver *managementv3.NodeDriver, namespace string) {
	t.Helper()
	annotate := func(value string) {
		t.Helper()
		before := driver.DeepCopy()
		metav1.SetMetaDataAnnotation(&driver.ObjectMeta, managementv3.FileFieldsAnnotation, value)
		if err := env.Client.Patch(t.Context(), driver, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	annotate("image")
	waitDriver(t, driver, "InvalidFileFields", managementv3.FileFieldsAnnotation+`: "image" is not of the form`)
	annotate("imageContents:image")
	waitDriver(t, driver, "Installed", "")
	testenv.Until(t, "the API server to know the field", func() error {
		config := driverObject("rke-machine-config.cattle.io", "LabConfig", namespace, "files", map[string]any{"imageContents": "x"})
		if err := env.Client.Create(t.Context(), config, client.DryRunAll); err != nil {
			return err
		}
		if config.Object["imageContents"] != "x" || config.Object["image"] != nil {
			return fmt.Errorf("the object is %v", config.Object)
		}
		return nil
	})
}

// What keeps a driver from being installed is in its conditions, and none of its kinds is installed.
func TestNodeDriverFaults(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][2]string{
		"crash": {"DriverFailed", "ended before it served"}, "many": {"DriverFailed", "more than 400"},
		"": {"InvalidFlags", `is spec.displayName the name of this driver`},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			name := "faulty" + mode
			installDriver(t, name, mode)
			driver := newDriver(t, name)
			waitDriver(t, driver, want[0], want[1])
			var crds apiextensionsv1.CustomResourceDefinitionList
			if err := env.Client.List(t.Context(), &crds, client.MatchingLabels{"management.cattle.io/node-driver": name}); err != nil {
				t.Fatal(err)
			}
			if len(crds.Items) > 0 {
				t.Errorf("%d definitions were installed", len(crds.Items))
			}
		})
	}
	for name, spec := range map[string]managementv3.NodeDriverSpec{
		"spec.url must be an https URL":  {URL: "http://example.com/d", Checksum: strings.Repeat("0", 64)},
		"spec.checksum must be":          {URL: "https://example.com/d", Checksum: "abc"},
		"SHA-512 of the file at spec.ur": {URL: "https://example.com/d", Builtin: true},
		"or set spec.builtin for a driv": {},
	} {
		spec.Active = true
		err := env.Client.Create(t.Context(), &managementv3.NodeDriver{ObjectMeta: metav1.ObjectMeta{Name: "refused"}, Spec: spec})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
}

// exported is a NodeDriver as Rancher has it, with what its server and its user interface have added.
const exported = `
apiVersion: management.cattle.io/v3
kind: NodeDriver
metadata:
  name: nd-exported
  annotations: {privateCredentialFields: token, publicCredentialFields: region, lifecycle.cattle.io/create.node-driver-controller: "true"}
  labels: {cattle.io/creator: norman}
  finalizers: [controller.cattle.io/node-driver-controller]
spec:
  active: false
  addCloudCredential: true
  builtin: false
  checksum: d41d8cd98f00b204e9800998ecf8427e
  description: Machines of a cloud
  displayName: exported
  externalId: ""
  uiUrl: https://example.com/component.js
  url: https://example.com/docker-machine-driver-exported.tar.gz
  whitelistDomains: [example.com]
status:
  appliedChecksum: d41d8cd98f00b204e9800998ecf8427e
  conditions:
  - {lastUpdateTime: "2026-01-01T00:00:00Z", status: "True", type: Downloaded}
`

// A NodeDriver that was exported from Rancher is taken; whoever applies it is told which fields have no effect.
func TestExportedNodeDriver(t *testing.T) {
	t.Parallel()
	driver := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(exported), &driver.Object); err != nil {
		t.Fatal(err)
	}
	driver.SetFinalizers(nil)
	warnings := &warningLog{}
	config := rest.CopyConfig(env.Config)
	config.WarningHandler = warnings
	writer, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Create(t.Context(), driver); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Client.Delete(context.Background(), driver); err != nil {
			t.Error(err)
		}
	})
	got := strings.Join(warnings.texts, "\n")
	for _, field := range []string{"spec.description", "spec.uiUrl", "spec.whitelistDomains", "spec.addCloudCredential"} {
		if !strings.Contains(got, field) {
			t.Errorf("no warning of %s: %q", field, got)
		}
	}
	for _, field := range []string{"externalId", "spec.url"} {
		if strings.Contains(got, field) {
			t.Errorf("a warning of %s: %q", field, got)
		}
	}
	typed := &managementv3.NodeDriver{ObjectMeta: metav1.ObjectMeta{Name: driver.GetName()}}
	waitDriver(t, typed, "Inactive", "set spec.active")
	typed.Spec.Active = true
	if err := env.Client.Update(t.Context(), typed); err == nil || !strings.Contains(err.Error(), "spec.checksum must be the SHA-256") {
		t.Errorf("activated with the checksum of another kind: %v", err)
	}
}

// warningLog keeps the warnings of the API server.
type warningLog struct{ texts []string }

func (w *warningLog) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }
