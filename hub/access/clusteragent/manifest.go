package clusteragent

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Manifest is the YAML to apply. It holds the registration token: whoever gets it to see can connect as this cluster's agent.
func Manifest(in Input) ([]byte, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	objects := []runtime.Object{namespace(in), serviceAccount()}
	objects = append(objects, permissions(in)...)
	objects = append(objects, credential(in))
	objects = append(objects, pullSecret(in)...)
	objects = append(objects, scheduling(in)...)
	objects = append(objects, authEndpoint(in)...)
	objects = append(objects, deployment(in))
	var out bytes.Buffer
	for _, object := range objects {
		document, err := encode(object)
		if err != nil {
			return nil, fmt.Errorf("writing the manifest of the cluster-agent: %w", err)
		}
		out.WriteString("---\n")
		out.Write(document)
	}
	return out.Bytes(), nil
}

// encode leaves out what only the API server writes.
func encode(object runtime.Object) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(content, "status")
	for _, path := range [][]string{{"metadata"}, {"spec", "template", "metadata"}} {
		unstructured.RemoveNestedField(content, append(path, "creationTimestamp")...)
	}
	return yaml.Marshal(content)
}
