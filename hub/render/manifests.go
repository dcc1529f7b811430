package render

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/plans"
)

// addManifests adds what the distribution's deploy controller applies to the cluster. The files are there even when they are empty,
// since the deploy controller removes what an earlier content held.
func (b *builder) addManifests() {
	dir := b.dataDir + "/server/manifests/rancher/"
	if b.Machine.ControlPlane {
		b.add(plans.File{Path: dir + "addons.yaml", Dynamic: true}, []byte(b.Cluster.Spec.AdditionalManifest))
	}
	if b.Machine.server() {
		b.add(plans.File{Path: dir + "managed-chart-config.yaml", Dynamic: true}, b.chartConfigs())
	}
}

// chartConfigs gives the values that the cluster sets for the distribution's own charts, one HelmChartConfig each.
func (b *builder) chartConfigs() []byte {
	var out bytes.Buffer
	charts := b.Cluster.Spec.ChartValues.Data
	for _, chart := range slices.Sorted(maps.Keys(charts)) {
		field := "spec.rkeConfig.chartValues." + chart
		values, ok := charts[chart].(map[string]any)
		if !ok && charts[chart] != nil {
			b.problems.fail(field, "is %s; it takes a map of values", describe(charts[chart]))
			continue
		}
		content, err := json.Marshal(withClusterID(values, b.Cluster.ManagementName))
		if err != nil {
			b.problems.fail(field, "cannot be written as values: %s", err)
			continue
		}
		doc, err := yaml.Marshal(map[string]any{
			"apiVersion": "helm.cattle.io/v1",
			"kind":       "HelmChartConfig",
			"metadata":   map[string]any{"name": chart, "namespace": "kube-system"},
			"spec":       map[string]any{"valuesContent": string(content)},
		})
		if err != nil {
			b.problems.fail(field, "cannot be written as a manifest: %s", err)
			continue
		}
		out.WriteString("---\n")
		out.Write(doc)
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
