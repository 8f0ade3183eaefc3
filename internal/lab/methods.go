package lab

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// CSIMethods lists the methods of the CSI specification by their bare names.
func CSIMethods() []string {
	var out []string
	protoregistry.GlobalFiles.RangeFilesByPackage("csi.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			m := f.Services().Get(i).Methods()
			for j := range m.Len() {
				out = append(out, string(m.Get(j).Name()))
			}
		}
		return true
	})
	slices.Sort(out)
	return out
}
