package store

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	fastjson "github.com/go-json-experiment/json"

	"github.com/postern-dev/postern/caddymodule/compat"
)

// The fast decoder reads the most numerous records, with the same result as the usual one.
func TestFastDecoder(t *testing.T) {
	t.Parallel()
	for _, r := range []any{
		new(accountRecord), new(keyRecord), new(connectorRecord), new(deploymentRecord), new(calibrationRecord),
		new(userRecord),
		new(passkeyRecord), new(sessionRecord), new(linkRecord), new(tokenRecord), new(pairingRecord),
		new(setupRecord), new(lastUsedRecord), new(usageRecord),
	} {
		t.Run(fmt.Sprintf("%T", r), func(t *testing.T) {
			t.Parallel()
			setAll(reflect.ValueOf(r).Elem())
			text, err := json.Marshal(r)
			must(t, err)
			usual, fast := reflect.New(reflect.TypeOf(r).Elem()).Interface(), reflect.New(reflect.TypeOf(r).Elem()).Interface()
			must(t, json.Unmarshal(text, usual))
			if err := fastjson.Unmarshal(text, fast, ofAnyLength); err != nil || !reflect.DeepEqual(fast, usual) {
				t.Errorf("%s\nis %+v\nnot %+v: %v", text, fast, usual, err)
			}
		})
	}
}

// The fast decoder reads the histograms of usage, which end with their last bucket in use.
func TestFastHistograms(t *testing.T) {
	t.Parallel()
	want, got := usageRecord{Usage: Usage{Waits: Histogram{7, 0, 3}}}, usageRecord{}
	text, err := json.Marshal(&want)
	must(t, err)
	if err := fastjson.Unmarshal(text, &got, ofAnyLength); err != nil || got != want {
		t.Errorf("%s is %+v: %v", text, got, err)
	}
}

// The usual decoder reads records that the fast one refuses.
func TestDecodeTwice(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		`{"v":1,"id":"a","name":"one","name":"two"}`,  // a name twice
		"{\"v\":1,\"id\":\"a\",\"name\":\"t\xffwo\"}", // invalid UTF-8
	} {
		var want, got accountRecord
		must(t, json.Unmarshal([]byte(value), &want))
		if fastjson.Unmarshal([]byte(value), new(accountRecord)) == nil {
			t.Errorf("the fast decoder accepts %q", value)
		}
		if err := decode(Item{Key: "accounts/a", Value: []byte(value)}, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v, %v", value, got, err)
		}
	}
}

// setAll sets all fields with JSON names to values other than zero.
func setAll(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)))
			return
		}
		if v.Type() == reflect.TypeFor[compat.Options]() {
			options := compat.Options{Defaults: `{"größer":["<&>"]}`, ContextWindow: 8192, FirstTokenTimeout: "1m"}
			v.Set(reflect.ValueOf(options))
			return
		}
		if v.Type() == reflect.TypeFor[netip.Prefix]() {
			v.Set(reflect.ValueOf(netip.MustParsePrefix("2001:db8::/32")))
			return
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous {
				setAll(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setAll(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(`"text"`)) // of json.RawMessage, too
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		setAll(v.Index(0))
		setAll(v.Index(1))
	case reflect.Array:
		for i := range v.Len() {
			setAll(v.Index(i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		setAll(key)
		setAll(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("größer <&> \"\\ \u2028")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.1)
	case reflect.Uint8, reflect.Uint32:
		v.SetUint(7)
	default:
		v.SetInt(1 << 40)
	}
}
