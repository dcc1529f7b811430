// Program stands for all programs of a release: it has a module, and lists one image.
package main

import (
	"fmt"
	"os"
	"strings"

	_ "github.com/google/go-cmp/cmp"
)

func main() {
	fmt.Println("drover/hub:v1.2.3,", strings.Join(os.Args[1:], " "))
}
