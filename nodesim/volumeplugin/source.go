package volumeplugin

import (
	"reflect"
	"strings"
)

// fieldSet names the one pointer of a union of sources that is set, by its JSON name.
func fieldSet(union any) string {
	v := reflect.ValueOf(union)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "none"
}
