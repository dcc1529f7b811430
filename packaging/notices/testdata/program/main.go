// Program has modules: one with a license, and one with licenses of several.
package main

import (
	"fmt"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
)

func main() {
	fmt.Println(cmp.Equal(ptr.To(1), ptr.To(1)))
}
