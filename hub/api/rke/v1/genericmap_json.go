package v1

import utiljson "k8s.io/apimachinery/pkg/util/json"

// unmarshalNumbers decodes as the API machinery does: whole numbers as int64, others as float64.
func unmarshalNumbers(data []byte, into any) error {
	return utiljson.Unmarshal(data, into)
}
