package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// Scheduling says where the Pods of Jobs run. The fields are those of a Pod.
type Scheduling struct {
	NodeSelector      map[string]string   `json:"nodeSelector,omitempty"`
	Tolerations       []corev1.Toleration `json:"tolerations,omitempty"`
	PriorityClassName string              `json:"priorityClassName,omitempty"`
}

// nodeSelector is that of Pods. The image is for Linux.
func (s Scheduling) nodeSelector() map[string]string {
	selector := map[string]string{corev1.LabelOSStable: "linux"}
	maps.Copy(selector, s.NodeSelector)
	return selector
}

// ParseScheduling reads JSON; nothing is the zero value. The error names a field that is not known.
func ParseScheduling(raw string) (out Scheduling, err error) {
	if raw == "" {
		return out, nil
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(raw)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out); err != nil {
		return Scheduling{}, fmt.Errorf("must be JSON with the fields nodeSelector, tolerations and priorityClassName of a Pod: %w", err)
	}
	return out, nil
}
