// Command finish completes the definitions that controller-gen makes from Cluster API's types with what upstream adds when it packages
// them: the labels by which clusterctl knows them, and conversion by webhook. It is part of "go generate" and of nothing else.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: finish <directory>")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	for _, file := range files {
		if err := finish(file); err != nil {
			return fmt.Errorf("finishing %s: %w", file, err)
		}
	}
	return nil
}

func finish(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(raw, &crd.Object); err != nil {
		return err
	}
	labels := crd.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["cluster.x-k8s.io/provider"] = "cluster-api"
	// clusterctl move looks only at kinds that have this label; its value does not matter.
	labels["clusterctl.cluster.x-k8s.io"] = ""
	crd.SetLabels(labels)

	conversion := map[string]any{
		"strategy": "Webhook",
		"webhook": map[string]any{
			"conversionReviewVersions": []any{"v1"},
			"clientConfig": map[string]any{
				"service": map[string]any{"namespace": "capi-system", "name": "capi-webhook-service", "path": "/convert"},
			},
		},
	}
	if err := unstructured.SetNestedMap(crd.Object, conversion, "spec", "conversion"); err != nil {
		return err
	}
	if err := dropColumnDescriptions(crd); err != nil {
		return err
	}
	out, err := yaml.Marshal(crd.Object)
	if err != nil {
		return err
	}
	return os.WriteFile(file, out, 0o644)
}

// dropColumnDescriptions does for printer columns what maxDescLen=0 does for fields.
func dropColumnDescriptions(crd *unstructured.Unstructured) error {
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return err
	}
	for _, version := range versions {
		columns, _ := version.(map[string]any)["additionalPrinterColumns"].([]any)
		for _, column := range columns {
			delete(column.(map[string]any), "description")
		}
	}
	return unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")
}
