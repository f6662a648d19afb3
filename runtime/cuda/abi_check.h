// Compile-time comparison of a function type of ours with the vendor's. Their named types differ, so what is compared
// is what a call passes: the number of parameters and, for each and for the result, its size and whether it is a
// pointer, an integer (or enum) or a floating point number.
#pragma once
#include <type_traits>

namespace kachel::runtime::cuda {

template <class A, class B>
constexpr bool kSamePassing =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
    std::is_floating_point_v<A> == std::is_floating_point_v<B> &&
    (std::is_integral_v<A> || std::is_enum_v<A>) == (std::is_integral_v<B> || std::is_enum_v<B>);

template <class A, class B>
struct SameAbi : std::false_type {};
template <class R, class... A, class S, class... B>
  requires(sizeof...(A) == sizeof...(B))
struct SameAbi<R (*)(A...), S (*)(B...)> : std::bool_constant<kSamePassing<R, S> && (kSamePassing<A, B> && ...)> {};

}  // namespace kachel::runtime::cuda
