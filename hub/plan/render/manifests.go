package render

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/limitedyaml"
	"github.com/drover-dev/drover/plans"
)

// addManifests adds what the distribution's deploy controller applies to the cluster. The files are there even when they are empty,
// since the deploy controller removes what an earlier content held. A cluster that needs Secrets before anything else gets nothing else
// until it has started.
func (b *builder) addManifests() {
	dir := b.dataDir + "/server/manifests/rancher/"
	first := !b.Cluster.Bootstrapped && len(b.Cluster.BootstrapSecrets) > 0
	if b.Machine.ControlPlane {
		if first {
			b.add(plans.File{Path: dir + "bootstrap-secrets.yaml", Dynamic: true}, b.bootstrapSecrets())
			return
		}
		b.addClusterAgent()
		b.addSnapshotMetadata(dir)
		b.checkManifest("spec.rkeConfig.additionalManifest", b.Cluster.Spec.AdditionalManifest)
		b.add(plans.File{Path: dir + "addons.yaml", Dynamic: true}, []byte(b.Cluster.Spec.AdditionalManifest))
	}
	if b.Machine.server() {
		b.add(plans.File{Path: dir + "managed-chart-config.yaml", Dynamic: true}, b.chartConfigs())
	}
}

// maxManifest is how many bytes a document of a manifest may have with all aliases written out.
const maxManifest = 8 << 20

// checkManifest reports a manifest that cannot be read: the distribution applies nothing of it, and says so in its journal only. If it has
// been started with it, it also applies all other manifests again, every 15 seconds.
func (b *builder) checkManifest(field, manifest string) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
	for i := 1; ; i++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = limitedyaml.Check(document, maxManifest)
		}
		if err == nil {
			var content any
			if err = yaml.Unmarshal(document, &content); err == nil && !isObject(content) {
				err = errors.New("it has no apiVersion and kind")
			}
		}
		if err != nil {
			b.problems.doubt(field, "is no manifest, so that nothing of it is applied: document %d: %s", i, err)
			return
		}
	}
}

// isObject reports whether a document of a manifest is an object of Kubernetes, or empty.
func isObject(document any) bool {
	if document == nil {
		return true
	}
	object, _ := document.(map[string]any)
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	return version != "" && kind != ""
}

// addSnapshotMetadata adds a ConfigMap whose content the distribution keeps in every snapshot.
func (b *builder) addSnapshotMetadata(dir string) {
	if b.Cluster.SnapshotMetadata == "" {
		return
	}
	name := b.Cluster.Release.Runtime + "-etcd-snapshot-extra-metadata"
	var out bytes.Buffer
	b.document(&out, "spec", map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "kube-system"},
		"data": map[string]any{"provisioning-cluster-spec": b.Cluster.SnapshotMetadata},
	})
	b.add(plans.File{Path: dir + name + ".yaml", Dynamic: true, Minor: true}, out.Bytes())
}

// bootstrapSecrets are the Secrets that the cluster needs first, and the Namespaces that they are in.
func (b *builder) bootstrapSecrets() []byte {
	var out bytes.Buffer
	made := map[string]bool{"default": true, "kube-system": true, "kube-public": true}
	for i, secret := range b.Cluster.BootstrapSecrets {
		if !b.checkTarget(secret, i > 0 && sameTarget(secret, b.Cluster.BootstrapSecrets[i-1])) {
			continue
		}
		if !made[secret.Namespace] {
			made[secret.Namespace] = true
			b.document(&out, "spec", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": secret.Namespace}})
		}
		doc := map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": secret.Name, "namespace": secret.Namespace},
		}
		if len(secret.Data) > 0 {
			doc["data"] = secret.Data
		}
		if secret.Type != "" {
			doc["type"] = secret.Type
		}
		b.document(&out, "spec", doc)
	}
	return out.Bytes()
}

func sameTarget(a, b BootstrapSecret) bool { return a.Namespace == b.Namespace && a.Name == b.Name }

// checkTarget refuses a name that no Secret can have in the cluster, and one that another Secret has already: the distribution would say so
// in its journal only, and the cluster would start without what it needs first.
func (b *builder) checkTarget(secret BootstrapSecret, taken bool) bool {
	field, value := rkev1.SyncTargetNamespaceAnnotation, secret.Namespace
	faults := validation.IsDNS1123Label(value)
	if len(faults) == 0 {
		field, value = rkev1.SyncTargetNameAnnotation, secret.Name
		faults = validation.IsDNS1123Subdomain(value)
	}
	switch {
	case len(faults) > 0:
		b.problems.fail("annotation "+field, "is %q on a Secret that the cluster needs first: %s", value, faults[0])
	case taken:
		b.problems.fail("annotation "+rkev1.SyncTargetNameAnnotation, "two Secrets that the cluster needs first are both to be %s/%s; give one "+
			"of them another name", secret.Namespace, secret.Name)
	default:
		return true
	}
	return false
}

// document writes one object of a manifest.
func (b *builder) document(out *bytes.Buffer, field string, object map[string]any) {
	doc, err := yaml.Marshal(object)
	if err != nil {
		b.problems.fail(field, "cannot be written as a manifest: %s", err)
		return
	}
	out.WriteString("---\n")
	out.Write(doc)
}

// vSphereCSI is a chart that has to know the cluster that it runs in even where nobody sets values for it.
const vSphereCSI = "rancher-vsphere-csi"

// chartConfigs gives the values that the cluster sets for the distribution's own charts, one HelmChartConfig each.
func (b *builder) chartConfigs() []byte {
	var out bytes.Buffer
	charts := maps.Clone(b.Cluster.Spec.ChartValues.Data)
	if charts[vSphereCSI] == nil && b.all.text("cloud-provider-name") == "rancher-vsphere" {
		if charts == nil {
			charts = map[string]any{}
		}
		charts[vSphereCSI] = nil
	}
	for _, chart := range slices.Sorted(maps.Keys(charts)) {
		field := "spec.rkeConfig.chartValues." + chart
		values, ok := charts[chart].(map[string]any)
		if !ok && charts[chart] != nil {
			b.problems.fail(field, "is %s; it takes a map of values", describe(charts[chart]))
			continue
		}
		if known := b.Cluster.Release.Charts; len(known) > 0 && !slices.Contains(known, chart) {
			b.problems.doubt(field, "is no chart that %s %s brings; the values wait for one of that name",
				b.Cluster.Release.Runtime, b.Cluster.Release.Version)
		}
		content, err := json.Marshal(withClusterID(values, b.Cluster.ManagementName))
		if err != nil {
			b.problems.fail(field, "cannot be written as values: %s", err)
			continue
		}
		b.document(&out, field, map[string]any{
			"apiVersion": "helm.cattle.io/v1",
			"kind":       "HelmChartConfig",
			"metadata":   map[string]any{"name": chart, "namespace": "kube-system"},
			"spec":       map[string]any{"valuesContent": string(content)},
		})
	}
	return out.Bytes()
}

// withClusterID copies values and sets global.cattle.clusterId, by which charts know the cluster that they run in.
func withClusterID(values map[string]any, id string) map[string]any {
	out := maps.Clone(values)
	if out == nil {
		out = map[string]any{}
	}
	sub := func(parent map[string]any, key string) map[string]any {
		child, _ := parent[key].(map[string]any)
		child = maps.Clone(child)
		if child == nil {
			child = map[string]any{}
		}
		parent[key] = child
		return child
	}
	sub(sub(out, "global"), "cattle")["clusterId"] = id
	return out
}
